"""Requests that a source must live with: usual ones, and some that are broken on purpose."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

from mlxfill import Limits, TemplateError
from mlxfill_testing.requests import tiny_request

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlxfill import Request

WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
_SAID = ({"role": "user", "content": "on 3 there"},)
_CALLED: tuple[dict[str, Any], ...] = (
    *_SAID,
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"function": {"name": "get_weather", "arguments": {"city": "oslo"}}}],
    },
    {"role": "tool", "content": "rain"},
)
_BROKEN_TOOLS: tuple[Any, ...] = (
    {},
    {"type": "function"},
    {"type": "function", "function": {"name": "", "parameters": {"properties": 7}}},
    {"type": "function", "function": {"name": "a", "parameters": None}},
)

USUAL: dict[str, dict[str, Any]] = {
    "": {},
    "a chat": {"messages": _SAID},
    "a chat with tools": {
        "messages": _CALLED,
        "tools": (WEATHER,),
        "template_options": {"enable_thinking": False},
    },
    "delimiters": {"delimiters": frozenset({5, 9})},
}
BROKEN: dict[str, dict[str, Any]] = {
    "tools that are no tools": {"messages": _SAID, "tools": _BROKEN_TOOLS},
    "messages that are no messages": {"messages": ({}, {"role": 7, "content": None})},
    "tools without messages": {"tools": (WEATHER,)},
    "a template that refuses": {"messages": _SAID, "tools": (WEATHER,), "render": None},
    "every id ending the reply": {"eos_ids": frozenset(range(64))},
    "every id a delimiter": {"delimiters": frozenset(range(64))},
    "one token of budget": {"limits": Limits(1, 64)},
}
OPENINGS = {**USUAL, **BROKEN}
"""What the kit's requests have besides a prompt, in words."""


def kit_request(prompt: Sequence[int], opening: str = "") -> Request:
    """A request with these prompt ids in the words of ``tiny_tokenizer()``."""
    special = deepcopy(OPENINGS[opening])  # a source may write into it
    if "render" in special:
        special["render"] = _refusing
    return tiny_request(prompt, **special)


def _refusing(*_: object, **__: object) -> str:
    raise TemplateError("the chat template refused the messages: it always does")
