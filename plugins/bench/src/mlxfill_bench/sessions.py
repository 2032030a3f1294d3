"""Recorded agent sessions: a file of JSON objects, a session a line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from attrs import field, frozen

from mlxfill import InputError, for_template

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Message = Mapping[str, Any]

SHIPPED = Path(__file__).with_name("sessions.jsonl")
"""Synthetic sessions for the model ``tiny``, made by ``python -m mlxfill_model_tiny.sessions``."""


@frozen
class Turn:
    """One turn of the assistant, counted from 1: what stood before it, and what was recorded.

    ``history`` is a text where that is to be continued as it is, without chat template;
    ``recorded`` is None where nothing was.
    """

    number: int
    history: tuple[Message, ...] | str
    recorded: Message | None = None


def name_of(session: str, turn: int) -> str:
    """What a turn is called in reports; the first one is called as its session or prompt is."""
    return session if turn == 1 else f"{session}, turn {turn}"


class Asked(Protocol):
    """What arms are asked: the turns of one conversation, with tools and options of the template.

    ``template_options`` go to the chat template: ``{"enable_thinking": False}``.
    """

    @property
    def id(self) -> str:
        """Its name in reports."""

    @property
    def tools(self) -> tuple[Message, ...] | None:
        """In OpenAI's format."""

    @property
    def template_options(self) -> Mapping[str, Any]:
        """Keywords of the chat template."""

    def turns(self) -> list[Turn]:
        """What is to be answered."""


@frozen
class Session:
    """One recorded conversation.

    ``messages`` and ``tools`` are in OpenAI's format, arguments of calls as objects.
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
    sessions = [_session(*line) for line in json_lines(file)]
    if not sessions:
        raise InputError(f"{file}: no sessions: it must hold one JSON object a line")
    check_names(file, "sessions", sessions)
    return sessions


def json_lines(file: str | Path) -> Iterator[tuple[Any, int, str]]:
    """What each line of a file holds, its number, and how an error names it.

    :raises InputError: the file cannot be read, or a line is no JSON.
    """
    # Not `splitlines`: JSON may hold other characters that end a line, such as U+2028, as they are.
    for number, line in enumerate(read_text(file).split("\n"), 1):
        where = f"{file}, line {number}"
        if line.strip():
            try:
                data = json.loads(line)
                json.dumps(data, ensure_ascii=False).encode()
            except UnicodeEncodeError as error:
                raise InputError(
                    f"{where}: half a character ({error.object[error.start]!r})"
                ) from error
            except (ValueError, RecursionError) as error:
                reason = str(error) or type(error).__name__
                raise InputError(f"{where}: is not JSON: {reason}") from error
            yield data, number, where


def read_text(file: str | Path) -> str:
    """The text of a file.  Raises ``InputError``, which names it."""
    try:
        return Path(file).read_text("utf-8")
    except OSError as error:
        raise InputError(f"{file}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{file} is not UTF-8 (at byte {error.start})") from error


def check_names(file: str | Path, what: str, found: Sequence[Asked]) -> None:
    """Raise ``InputError`` when two of them have one id."""
    ids = [each.id for each in found]
    doubled = next((each for each in ids if ids.count(each) > 1), None)
    if doubled is not None:
        raise InputError(f"{file}: two {what} have the id {doubled!r}")


def _session(data: object, number: int, where: str) -> Session:
    if not isinstance(data, dict):
        raise InputError(f"{where}: must be an object with messages, not {json.dumps(data)[:40]}")
    check_present(data, ["messages"], where)
    tools, options = read_tools(data, where)
    messages = read_messages(data.get("messages"), where)
    session = Session(str(data.get("id", number)), messages, tools, options)
    if not session.turns():
        raise InputError(f"{where}: no turn of the assistant to replay")
    return session


def read_tools(
    data: Mapping[str, Any], where: str
) -> tuple[tuple[Message, ...] | None, Mapping[str, Any]]:
    """Tools and options of the template.  Raises ``InputError``."""
    tools, options = data.get("tools"), data.get("template_options") or {}
    if tools is not None and not _all_objects(tools):
        raise InputError(f"{where}: tools must be a list of tools in OpenAI's format")
    if not isinstance(options, dict):
        raise InputError(f"{where}: template_options must be an object, not {options!r}")
    return tuple(tools or ()) or None, options


def read_messages(value: object, where: str) -> tuple[Message, ...]:
    """Messages in the forms that OpenAI's format allows.  Raises ``InputError``."""
    if not isinstance(value, list) or not _all_objects(value):
        raise InputError(f"{where}: messages must be a list of objects with role and content")
    try:
        messages = for_template([{"content": None, **message} for message in value])
    except InputError as error:
        raise InputError(f"{where}: {error}") from error
    for at, message in enumerate(messages):
        if not all(map(_is_call, message.get("tool_calls") or ())):
            raise InputError(f"{where}: message {at} has tool_calls without name and arguments")
    return tuple(messages)


def check_present(data: Mapping[str, Any], required: Sequence[str], where: str) -> None:
    """Raise ``InputError`` when it holds none of the ``required`` keys."""
    if not any(key in data for key in required):
        near = [get_close_matches(key, required, 1) for key in data]
        hint = next((f"; did you mean {keys[0]!r}?" for keys in near if keys), "")
        raise InputError(f"{where}: holds no {' or '.join(required)}, only {[*data]}{hint}")


def _all_objects(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)


def _is_call(call: Mapping[str, Any]) -> bool:
    function = call.get("function")
    return (
        isinstance(function, dict)
        and isinstance(function.get("name"), str)
        and isinstance(function.get("arguments"), dict)
    )
