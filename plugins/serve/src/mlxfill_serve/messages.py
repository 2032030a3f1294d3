"""Chat messages of a request, in the form that chat templates know."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from mlxfill_serve.bodies import TextPart

if TYPE_CHECKING:
    from mlxfill_serve.bodies import Message


def for_template(message: Message) -> dict[str, Any]:
    """A message with its text in one piece and arguments of calls as objects."""
    made: dict[str, Any] = {"role": message.role, "content": _text(message)}
    if message.role == "developer":
        made["role"] = "system"
    for name in ("name", "tool_call_id", "reasoning_content"):
        if getattr(message, name) is not None:
            made[name] = getattr(message, name)
    if message.tool_calls:
        made["tool_calls"] = [_call(c.model_dump(exclude_none=True)) for c in message.tool_calls]
    return made


def _text(message: Message) -> str:
    content = message.content
    if isinstance(content, list):
        return "".join(part.text for part in content if isinstance(part, TextPart))
    return content or ""


def _call(call: dict[str, Any]) -> dict[str, Any]:
    """Templates write arguments as JSON: they want the object."""
    arguments = call["function"].get("arguments") or "{}"
    if isinstance(arguments, str):
        # What a model wrote in an earlier turn need not be JSON.
        with suppress(ValueError, RecursionError):
            arguments = json.loads(arguments)
    return {**call, "type": "function", "function": {**call["function"], "arguments": arguments}}
