"""Tool calls in a reply."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from mlxfill.tool_calls.jsontext import as_call

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mlx_lm.tokenizer_utils import TokenizerWrapper


def read_calls(
    tokenizer: TokenizerWrapper,
    body: str,
    tools: Sequence[Mapping[str, Any]] | None = None,
) -> list[dict[str, Any]]:
    """The calls in what stands between two markers of a reply.

    All of ``body`` is calls of offered tools, or none of it: what is broken, or would be lost, is
    text.  Each call is ``{"name": ..., "arguments": {...}}``, with an ``id`` where the model gave
    one; values are of the types that the tools' schemas say, integers exact.

    :param tokenizer: of a loaded engine.
    :param tools: those of the request; None: any name is a tool's.
    """
    try:
        found = tokenizer.tool_parser(body, list(tools or ()))
        calls = [as_call(each) for each in (found if isinstance(found, list) else [found])]
        json.dumps(calls, allow_nan=False, ensure_ascii=False).encode()
    except Exception:  # noqa: BLE001 - a parser raises what it likes for text that is no call
        return []
    if tools is not None and not {call["name"] for call in calls} <= names_of(tools):
        return []
    return calls


def names_of(tools: Sequence[Mapping[str, Any]]) -> set[str]:
    """The names of tools in OpenAI's format."""
    return {str((tool.get("function") or {}).get("name")) for tool in tools}
