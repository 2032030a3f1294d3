"""Requests that a source must live with: usual ones, and some that are broken on purpose."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mlxfill.contracts import Limits, Request
from mlxfill.errors import TemplateError
from mlxfill.sampling import Sampling
from mlxfill.testing.tokenizer import EOS, tiny_tokenizer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
    "a chat with tools": {"messages": _CALLED, "tools": (WEATHER,)},
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
    special = dict(OPENINGS[opening])
    if "render" in special:
        special["render"] = _refusing
    fields: dict[str, Any] = {
        "prompt_text": tiny_tokenizer().decode(list(prompt)),
        "messages": None,
        "tools": None,
        "sampling": Sampling(seed=1),
        "limits": Limits(512, 4096),
        "tokenizer": tiny_tokenizer(),
        "render": _rendered,
        "eos_ids": frozenset({EOS}),
        **special,
    }
    return Request(prompt_ids=tuple(prompt), **fields)


def _rendered(
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]] | None = None,
    **options: Any,  # noqa: ANN401
) -> str:
    settings = {"add_generation_prompt": True, **options}
    try:
        text = tiny_tokenizer().apply_chat_template(
            list(messages), tools=list(tools) if tools else None, tokenize=False, **settings
        )
    except Exception as error:
        raise TemplateError(f"the chat template refused the messages: {error}") from error
    return str(text)


def _refusing(*_: object, **__: object) -> str:
    raise TemplateError("the chat template refused the messages: it always does")
