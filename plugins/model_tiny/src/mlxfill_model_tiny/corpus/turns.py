"""The four kinds of turn in a conversation, as chat messages.

A turn of the assistant also carries ``why``: the reasoning that a thinking transcript
shows.  :func:`as_message` moves it to ``reasoning_content`` or drops it.
"""

from __future__ import annotations

import json
from typing import Any, TypeAlias

Turn: TypeAlias = dict[str, Any]


def user(text: str) -> Turn:
    """The user asks."""
    return {"role": "user", "content": text}


def call(tool: str, why: str, **arguments: Any) -> Turn:  # noqa: ANN401 - any JSON value
    """The assistant calls one tool."""
    function = {"name": tool, "arguments": arguments}
    return {
        "role": "assistant",
        "content": "",
        "why": why,
        "tool_calls": [{"type": "function", "function": function}],
    }


def returned(value: Any) -> Turn:  # noqa: ANN401 - any JSON value
    """A tool's result: text as it is, everything else as JSON."""
    return {"role": "tool", "content": value if isinstance(value, str) else json.dumps(value)}


def say(text: str, why: str = "I have the result. I will answer now.") -> Turn:
    """The assistant answers in prose."""
    return {"role": "assistant", "content": text, "why": why}


def as_message(turn: Turn, *, thinking: bool) -> Turn:
    """The turn as a chat message, with its reasoning where ``thinking``."""
    message = {key: value for key, value in turn.items() if key != "why"}
    if thinking and "why" in turn:
        message["reasoning_content"] = turn["why"]
    return message
