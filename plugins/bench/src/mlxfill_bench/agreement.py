"""What a turn does, and whether two turns do the same."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from attrs import frozen

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mlxfill import Result


@frozen
class Deed:
    """What a turn comes to: its tool calls in order, or its text when it makes none.

    ``calls`` are JSON texts of name and arguments with sorted keys.  ``text`` is without
    reasoning, each run of white space one space.
    """

    calls: tuple[str, ...]
    text: str

    def same(self, other: Deed) -> bool:
        """The same calls, whatever is said beside them; without calls the same text."""
        return self.calls == other.calls and (bool(self.calls) or self.text == other.text)

    def __str__(self) -> str:
        return " ".join(self.calls) or self.text


def recorded_deed(message: Mapping[str, Any]) -> Deed:
    """What a recorded message of the assistant did."""
    calls = [call["function"] for call in message.get("tool_calls") or ()]
    return Deed(tuple(map(_canonical, calls)), _normalised(message.get("content") or ""))


def generated_deed(result: Result, tokenizer: Any) -> Deed:  # noqa: ANN401 - mlx-lm's wrapper
    """What a generated turn does.  A broken call among the others makes all of it mere text."""
    calls, opening = tuple(map(_canonical, result.tool_calls)), tokenizer.tool_call_start
    if opening:
        quoted = sum(call.count(opening) for call in calls)
        opened = result.content.count(opening) - quoted
        calls = calls if opened <= len(calls) else ()
    return Deed(calls, _normalised(result.content))


def _canonical(function: Mapping[str, Any]) -> str:
    call = {"name": function["name"], "arguments": function["arguments"]}
    return json.dumps(call, sort_keys=True, ensure_ascii=False)


def _normalised(text: str) -> str:
    return " ".join(text.split())
