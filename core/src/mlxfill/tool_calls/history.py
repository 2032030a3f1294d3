"""Tool calls of earlier turns, in the form in which the chat template writes them.

Most templates take arguments as an object.  Some put them where text belongs, and so refuse the
conversation or write Python's own form of a dictionary.  Which it is is found out by a conversation
of three messages.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from mlxfill.messages import arguments_of, with_arguments

Message: TypeAlias = Mapping[str, Any]

_NAME, _VALUE = "look_up_weather", "Reykjavik"
_ID = "a1b2c3d4e"  # some templates refuse ids of other than nine letters and digits
PROBE: tuple[dict[str, Any], ...] = (
    {"role": "user", "content": "Go on."},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {
                "type": "function",
                "id": _ID,
                "function": {"name": _NAME, "arguments": {"place": _VALUE}},
            }
        ],
    },
    {"role": "tool", "tool_call_id": _ID, "name": _NAME, "content": "12"},
)
"""A conversation with a call."""


def with_calls_told(
    messages: Sequence[dict[str, Any]], write: Callable[[Sequence[Message]], str]
) -> list[dict[str, Any]]:
    """The messages, with arguments as text where the template cannot write objects.

    :param messages: arguments of calls are objects.
    :param write: applies the template.
    """
    calling = any(message.get("tool_calls") for message in messages)
    if calling and not _says(write, PROBE) and _says(write, _with_text(PROBE)):
        return _with_text(messages)
    return list(messages)


def writes_no_calls(write: Callable[[Sequence[Message]], str]) -> bool:
    """Whether the template takes a conversation with a call, and leaves the call out.

    :param write: applies the template.
    """
    try:
        return _NAME not in write(PROBE)
    except Exception:  # noqa: BLE001 - a template raises what it likes
        return False


def unreadable(messages: Sequence[Message]) -> str:
    """``"; ..."`` that names the first call whose arguments are no JSON object, or nothing."""
    for at, message in enumerate(messages):
        for call in message.get("tool_calls") or ():
            arguments = arguments_of(call)
            if isinstance(arguments, str) and not _is_object(arguments):
                name = call["function"].get("name")
                return f"; the arguments of the call of {name!r} in message {at} are no JSON object"
    return ""


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _says(write: Callable[[Sequence[Message]], str], messages: Sequence[Message]) -> bool:
    """Whether name and arguments are written, and these as JSON is or in the template's own way."""
    try:
        text = write(messages)
    except Exception:  # noqa: BLE001 - a template raises what it likes
        return False
    arguments = {"place": _VALUE}
    escaped = json.dumps(json.dumps(arguments))[1:-1]
    return _NAME in text and _VALUE in text and escaped not in text and repr(arguments) not in text


def _with_text(messages: Sequence[Message]) -> list[dict[str, Any]]:
    made = [dict(message) for message in messages]
    for message in made:
        if message.get("tool_calls"):
            message["tool_calls"] = [_as_text(call) for call in message["tool_calls"]]
    return made


def _as_text(call: Message) -> Message:
    arguments = arguments_of(call)
    if not isinstance(arguments, Mapping):
        return call
    return with_arguments(call, json.dumps(arguments, ensure_ascii=False))
