"""Chat messages in OpenAI's format, in the forms that chat templates know."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from typing import Any, TypeGuard

from mlxfill.errors import InputError, shown

TEXT_PARTS = ("text", "input_text", "output_text")
"""Types of the parts of a content whose key ``text`` holds text."""
SHORT_ID = 9
THOUGHTS = ("reasoning_content", "reasoning", "thinking")
"""What servers call the text that a model thought; templates mostly read the first."""
_THOUGHT_PARTS = {"reasoning_details": ("text", "summary"), "thinking_blocks": ("thinking",)}
"""The same in parts, and the keys of their text.  Encrypted parts hold none."""
_TEXTS = ("role", "name", "tool_call_id", *THOUGHTS)
"""Characters of a value that an error shows."""


def for_template(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The messages with each content in one piece and the arguments of calls as objects.

    OpenAI's format allows more than most templates know: a content of None or in parts, of which
    those of text are joined, and arguments as JSON text, empty for none; what is no JSON stays as
    it is.  What an assistant thought is in ``reasoning_content``, also where a server called it
    ``reasoning``, ``thinking``, ``reasoning_details`` or ``thinking_blocks``.

    :raises InputError: names the number of the message and the key whose value is of another form.
    """
    return [_one(message, f"message {at}") for at, message in enumerate(messages)]


def with_short_ids(messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The messages with ids of calls in nine letters and digits: some templates take no others.

    Equal ids stay equal, and an id of that form stays as it is.
    """
    return [_with_short_ids(message) for message in messages]


def arguments_of(call: Mapping[str, Any]) -> object:
    """The arguments of a call as they stand in it; None where it has none, or no function."""
    function = call.get("function")
    return function.get("arguments") if isinstance(function, Mapping) else None


def with_arguments(call: Mapping[str, Any], arguments: object) -> Mapping[str, Any]:
    """The call of the same function with other arguments."""
    return {**call, "function": {**call["function"], "arguments": arguments}}


def _with_short_ids(message: Mapping[str, Any]) -> Mapping[str, Any]:
    made = dict(message)
    if isinstance(made.get("tool_call_id"), str):
        made["tool_call_id"] = _short(made["tool_call_id"])
    if made.get("tool_calls"):
        made["tool_calls"] = [
            {**call, "id": _short(call["id"])} if isinstance(call.get("id"), str) else call
            for call in made["tool_calls"]
        ]
    return made


def _short(call_id: str) -> str:
    if len(call_id) == SHORT_ID and call_id.isalnum():
        return call_id
    return sha256(call_id.encode()).hexdigest()[:SHORT_ID]


def _one(message: Mapping[str, Any], where: str) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise InputError(f"{where} must be a mapping with role and content, not {shown(message)}")
    if message.get("role") in (None, ""):
        raise InputError(f"{where} has no role: {shown(message)}")
    for key in _TEXTS:
        if not isinstance(message.get(key), str | None):
            raise InputError(f"{where}: {key} must be a string, not {shown(message[key])}")
    made = dict(message)
    if "content" in made:
        made["content"] = _text(made["content"], where)
    if made.get("tool_calls") is not None:
        made["tool_calls"] = _calls(made["tool_calls"], where)
    thought = _thought(made, where)
    return {**made, "reasoning_content": thought} if thought else made


def _thought(message: Mapping[str, Any], where: str) -> str:
    """What the assistant thought before it said this, under whatever name."""
    told = {key: message[key] for key in THOUGHTS if message.get(key)}
    for key, fields in _THOUGHT_PARTS.items():
        text = _in_parts(message.get(key), fields, f"{where}: {key}")
        if text and not told:  # beside the text they are often a summary of it
            told[key] = text
    first, *others = told or ("",)
    for other in others:
        if told[other] != told[first]:
            raise InputError(f"{where}: {first} and {other} differ: give one of them")
    return str(told.get(first, ""))


def _in_parts(parts: object, fields: Sequence[str], where: str) -> str:
    if parts is None:
        return ""
    if not _is_list(parts) or not all(isinstance(part, Mapping) for part in parts):
        raise InputError(f"{where} must be a list of parts, not {shown(parts)}")
    texts = [
        part[key] for part in parts for key in fields if isinstance(part, Mapping) and part.get(key)
    ]
    if not all(isinstance(text, str) for text in texts):
        raise InputError(f"{where}: {' and '.join(fields)} must be strings, not {shown(texts)}")
    return "".join(texts)


def _text(content: object, where: str) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    if not _is_list(content):
        raise InputError(f"{where}: content must be a string or text parts, not {shown(content)}")
    return "".join(_part(part, f"{where}: content, part {n}") for n, part in enumerate(content))


def _part(part: object, where: str) -> str:
    kind = part.get("type") if isinstance(part, Mapping) else None
    if not isinstance(part, Mapping) or kind is None:
        raise InputError(f"{where} must be a mapping with type and text, not {shown(part)}")
    if kind not in TEXT_PARTS:
        raise InputError(f"{where} is of the type {shown(kind)}: only text is understood")
    text = part.get("text")
    if not isinstance(text, str):
        raise InputError(f"{where}: text must be a string, not {shown(text)}")
    return text


def _calls(calls: object, where: str) -> list[Mapping[str, Any]]:
    held = calls if _is_list(calls) else [calls]
    made = [_call(call) for call in held if isinstance(call, Mapping)]
    if not _is_list(calls) or len(made) < len(held):
        raise InputError(f"{where}: tool_calls must be a list of calls, not {shown(calls)}")
    return made


def _call(call: Mapping[str, Any]) -> Mapping[str, Any]:
    """Templates write arguments as JSON: they want the object."""
    arguments = arguments_of(call)
    if not isinstance(arguments, str):
        return call
    # What a model wrote in an earlier turn need not be JSON; without arguments it may be nothing.
    with suppress(ValueError, RecursionError):
        return with_arguments(call, json.loads(arguments.strip() or "{}"))
    return call


def _is_list(value: object) -> TypeGuard[Sequence[object]]:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)
