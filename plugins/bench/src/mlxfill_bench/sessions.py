"""Recorded agent sessions: a file of JSON objects, a session a line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attrs import field, frozen

from mlxfill import InputError

Message = Mapping[str, Any]

SHIPPED = Path(__file__).with_name("sessions.jsonl")
"""Synthetic sessions for the model ``tiny``, made by ``python -m mlxfill_model_tiny.sessions``."""


@frozen
class Turn:
    """One turn of the assistant, counted from 1: what stood before it, and what was recorded."""

    number: int
    history: tuple[Message, ...]
    recorded: Message


@frozen
class Session:
    """One recorded conversation.

    ``messages`` and ``tools`` are in OpenAI's format, arguments of calls as objects.
    ``template_options`` go to the chat template: ``{"enable_thinking": False}``.
    """

    id: str
    messages: tuple[Message, ...]
    tools: tuple[Message, ...] | None = None
    template_options: Mapping[str, Any] = field(factory=dict)

    def turns(self) -> list[Turn]:
        """Every turn of the assistant that has a history."""
        at = [i for i, m in enumerate(self.messages) if i and m["role"] == "assistant"]
        return [Turn(n, self.messages[:i], self.messages[i]) for n, i in enumerate(at, 1)]


def read_sessions(file: str | Path) -> list[Session]:
    """The sessions in a file.

    :raises InputError: it cannot be read, is of another form or holds nothing to replay; names
        file and line.
    """
    try:
        lines = Path(file).read_text("utf-8").splitlines()
    except OSError as error:
        raise InputError(f"{file}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{file} is not UTF-8 (at byte {error.start})") from error
    sessions = [
        _session(line, number, f"{file}, line {number}")
        for number, line in enumerate(lines, 1)
        if line.strip()
    ]
    if not sessions:
        raise InputError(f"{file}: no sessions: it must hold one JSON object a line")
    ids = [session.id for session in sessions]
    doubled = next((each for each in ids if ids.count(each) > 1), None)
    if doubled is not None:
        raise InputError(f"{file}: two sessions have the id {doubled!r}")
    return sessions


def _session(line: str, number: int, where: str) -> Session:
    try:
        data = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: is not JSON: {str(error) or type(error).__name__}") from error
    if not isinstance(data, dict):
        raise InputError(f"{where}: must be an object with messages, not {line[:40]}")
    tools, options = data.get("tools"), data.get("template_options") or {}
    if tools is not None and not _all_objects(tools):
        raise InputError(f"{where}: tools must be a list of tools in OpenAI's format")
    if not isinstance(options, dict):
        raise InputError(f"{where}: template_options must be an object, not {options!r}")
    messages = tuple(_messages(data.get("messages"), where))
    session = Session(str(data.get("id", number)), messages, tuple(tools or ()) or None, options)
    if not session.turns():
        raise InputError(f"{where}: no turn of the assistant to replay")
    return session


def _messages(value: object, where: str) -> list[Message]:
    if not isinstance(value, list) or not _all_objects(value):
        raise InputError(f"{where}: messages must be a list of objects with role and content")
    for at, message in enumerate(value):
        if not isinstance(message.get("role"), str):
            raise InputError(f"{where}: message {at} has no role: {json.dumps(message)[:60]}")
        calls = message.get("tool_calls")
        if calls is not None and not (_all_objects(calls) and all(map(_is_call, calls))):
            raise InputError(f"{where}: message {at} has tool_calls without name and arguments")
    return [_for_template(message) for message in value]


def _all_objects(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)


def _is_call(call: Mapping[str, Any]) -> bool:
    function = call.get("function")
    return (
        isinstance(function, dict)
        and isinstance(function.get("name"), str)
        and isinstance(_object(function.get("arguments")), dict)
    )


def _for_template(message: Mapping[str, Any]) -> Message:
    """OpenAI's format allows forms that few templates know: text in parts, arguments as text."""
    changed = dict(message)
    content = message.get("content")
    if isinstance(content, list):
        parts = [part.get("text", "") for part in content if isinstance(part, dict)]
        changed["content"] = "".join(parts)
    elif content is None:
        changed["content"] = ""
    if message.get("tool_calls"):
        changed["tool_calls"] = [
            {
                **call,
                "function": {
                    **call["function"],
                    "arguments": _object(call["function"]["arguments"]),
                },
            }
            for call in message["tool_calls"]
        ]
    return changed


def _object(arguments: object) -> Any:  # noqa: ANN401 - whatever the file holds
    """Arguments as an object, from an object or from the JSON text that OpenAI sends."""
    if not isinstance(arguments, str):
        return arguments
    try:
        return json.loads(arguments)
    except ValueError:
        return None
