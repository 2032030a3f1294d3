"""Recorded sessions, from the files in which they are found."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attrs import frozen

from mlxfill import InputError
from mlxfill_bench.forecast import transcripts
from mlxfill_bench.sessions import (
    Message,
    Session,
    Turn,
    json_lines,
    read_messages,
    read_text,
    read_tools,
)

REPLIES = ("response", "output", "completion")
"""Where logs of requests keep the answer beside the request."""
REQUESTS = ("request", "body", "input")
"""Where they keep the request."""
KEYS = {"role", "content", "tool_calls", "tool_call_id", "name", "reasoning_content"}
"""What templates know of a message."""


@frozen
class Recorded:
    """A session, and those of its replies that are to be foreseen.

    A log of requests has earlier replies in each later request: there only the last one is.
    """

    session: Session
    turns: tuple[Turn, ...]


def read_recorded(file: Path) -> list[Recorded]:
    """The sessions in a file.

    OpenAI messages: a session a line, as a list or with ``messages`` and, if wanted, ``id``,
    ``tools`` and ``template_options``.  Logs of chat completions: request and response a line, in
    one object or in two of its fields.  ``.traj``: a trajectory of SWE-agent.  Transcripts of
    coding agents: an event a line, of a message or of a response item.

    :raises InputError: it cannot be read, or holds no reply; names file and line.
    """
    name = file.stem
    if file.suffix in {".traj", ".json"}:
        try:
            data = json.loads(read_text(file))
        except (ValueError, RecursionError) as error:
            raise InputError(f"{file} is not JSON: {error}") from error
        items = data if isinstance(data, list) and not _is_messages(data) else [data]
        lines = [(item, at, f"{file}, item {at}") for at, item in enumerate(items, 1)]
    else:
        lines = list(json_lines(file))
    if lines and all(transcripts.is_event(data) for data, _, _ in lines):
        messages = transcripts.messages_of(data for data, _, _ in lines)
        sessions = [_session({"messages": messages}, name, str(file))]
    else:
        sessions = [
            _session(data, name if len(lines) == 1 else f"{name}-{number}", where)
            for data, number, where in lines
        ]
    found = [session for session in sessions if session.turns]
    if not found:
        raise InputError(f"{file}: no reply in it that a message stands before")
    return found


def _session(data: object, name: str, where: str) -> Recorded:
    given, answer = _opened(data)
    if given is None:
        forms = "messages, request and response, or history"
        raise InputError(f"{where}: no session: it must be an object with {forms}")
    if not isinstance(given["messages"], list):
        raise InputError(f"{where}: messages must be a list of objects with role and content")
    written = [*given["messages"], *([answer] if answer else [])]
    messages = read_messages([_plain(message) for message in written], where)
    tools, options = read_tools(given, where)
    if "enable_thinking" not in options:  # who recorded no thoughts let none be written
        options = {"enable_thinking": any(map(_thinks, messages)), **options}
    session = Session(str(given.get("id") or name), messages, tools, options)
    turns = session.turns()
    return Recorded(session, tuple(turns[-1:] if answer else turns))


def _thinks(message: Message) -> bool:
    return bool(message.get("reasoning_content"))


def _opened(data: object) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """The object that has ``messages``, and in a log of requests the answer to them."""
    if isinstance(data, list):
        return {"messages": data}, None
    if not isinstance(data, dict):
        return None, None
    if isinstance(data.get("history"), list):
        return {**data, "messages": data["history"]}, None
    inner = next((data[key] for key in REQUESTS if isinstance(data.get(key), dict)), data)
    if "messages" not in inner:
        return None, None
    answer = next((data[key] for key in REPLIES if isinstance(data.get(key), dict)), data)
    answer = answer["body"] if isinstance(answer.get("body"), dict) else answer
    choices = answer.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    said = first.get("message") if isinstance(first, dict) else None
    given = {"id": data.get("id"), **inner}
    return given, {"role": "assistant", **said} if isinstance(said, dict) else None


def _plain(message: object) -> object:
    """A message with what templates know: text, thoughts, calls."""
    if not isinstance(message, Mapping):
        return message
    kept = {key: value for key, value in message.items() if key in KEYS and value is not None}
    if message.get("reasoning"):
        kept.setdefault("reasoning_content", message["reasoning"])
    if isinstance(kept.get("content"), list):
        kept["content"] = transcripts.text_of(kept["content"])
    return {"content": "", **kept}


def _is_messages(data: list[Any]) -> bool:
    return bool(data) and all(isinstance(item, dict) and "role" in item for item in data)
