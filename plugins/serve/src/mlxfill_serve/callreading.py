"""Calls in a text, as a client would be told of them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from mlxfill_serve.reply import CallArguments, CallBegun, ReplyReader

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def read_back(
    tokenizer: Any,  # noqa: ANN401 - mlx-lm's wrapper, untyped
    tools: Sequence[Mapping[str, Any]],
    text: str,
) -> list[tuple[str, Any]]:
    """Names and arguments of the calls that a reply makes; empty when it holds anything else."""
    reader = ReplyReader(tokenizer, tools, "")
    calls: list[list[str]] = []
    for part in [*reader.feed(text), *reader.end()]:
        match part:
            case CallBegun(_, _, name):
                calls.append([name, ""])
            case CallArguments(index, piece):
                calls[index][1] += piece
            case _:
                return []
    try:
        return [(name, json.loads(arguments)) for name, arguments in calls]
    except ValueError:
        return []
