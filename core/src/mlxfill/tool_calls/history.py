"""Tool calls of earlier turns, in the form in which the chat template writes them.

Most templates take arguments as an object.  Some put them where text belongs, and so refuse the
conversation or write Python's own form of a dictionary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mlxfill.errors import TemplateError
from mlxfill.tool_calls.messages import arguments_of, with_arguments
from mlxfill.tool_calls.probe import QUESTION, CallProbe
from mlxfill.tool_calls.ways import EXAMPLE, NAME, as_json, holds_example, ways_to_call

_OBJECT, _TEXT = (way.message([EXAMPLE]) for way in next(ways_to_call()))
_ID = _OBJECT["tool_calls"][0]["id"]
CONVERSATION = (
    QUESTION,
    _OBJECT,
    {"role": "tool", "tool_call_id": _ID, "name": NAME, "content": "12"},
)
"""A question, a call and what came of it."""


def with_calls_told(messages: Sequence[dict[str, Any]], probe: CallProbe) -> list[dict[str, Any]]:
    """The messages, with arguments as text where the template cannot write objects.

    :param messages: arguments of calls are objects.
    :param probe: asks the template, with the tools and options of this prompt.
    """
    calling = any(message.get("tool_calls") for message in messages)
    return _with_text(messages) if calling and probe.once(_wants_text) else list(messages)


def writes_no_calls(probe: CallProbe) -> bool:
    """Whether the template takes a conversation with a call, and leaves the call out."""
    try:
        turn = probe.turn(_OBJECT)
    except TemplateError:
        return False
    return turn is not None and NAME not in turn


def _wants_text(probe: CallProbe) -> bool:
    try:
        return not holds_example(probe.turn(_OBJECT)) and holds_example(probe.turn(_TEXT))
    except TemplateError:
        return False


def _with_text(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    made = [dict(message) for message in messages]
    for message in made:
        if message.get("tool_calls"):
            message["tool_calls"] = [_as_text(call) for call in message["tool_calls"]]
    return made


def _as_text(call: Mapping[str, Any]) -> Mapping[str, Any]:
    arguments = arguments_of(call)
    return with_arguments(call, as_json(arguments)) if isinstance(arguments, Mapping) else call
