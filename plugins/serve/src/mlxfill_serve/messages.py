"""Chat messages of a request, in the form that chat templates know."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mlxfill
from mlxfill_serve.bodies import Call

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mlxfill_serve.bodies import Message


PASSED = (
    "name",
    "tool_call_id",
    "reasoning_content",
    "reasoning",
    "thinking",
    "reasoning_details",
    "thinking_blocks",
)
"""What a message holds beside role, content and calls; thoughts have a name for each server."""


def for_template(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """Messages with their text in one piece and arguments of calls as objects."""
    return mlxfill.for_template([_one(message) for message in messages])


def _one(message: Message) -> dict[str, Any]:
    parts = message.content
    content = [part.model_dump() for part in parts] if isinstance(parts, list) else parts
    made: dict[str, Any] = {"role": message.role, "content": content}
    for name in PASSED:
        if getattr(message, name) is not None:
            made[name] = getattr(message, name)
    calls = message.tool_calls or []
    if message.function_call is not None and not calls:
        calls = [Call(function=message.function_call)]
    if calls:
        made["tool_calls"] = [_call(call.model_dump(exclude_none=True)) for call in calls]
    if message.refusal and not content:
        made["content"] = message.refusal
    return made


def _call(call: dict[str, Any]) -> dict[str, Any]:
    arguments = call["function"].get("arguments") or {}
    return {**call, "type": "function", "function": {**call["function"], "arguments": arguments}}
