"""The requests of a batch: one JSON value a line, checked before anything is computed."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from attrs import frozen

from mlxfill import exactjson
from mlxfill.cli.options.ask import STDIN, checked_messages, checked_tools, read_text
from mlxfill.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

OBJECTS = frozenset(
    {
        *("cache", "prompt_cache", "keep_cache", "snapshot_at", "on_prefill_done"),
        *("on_prefill_progress", "cancel", "input_embeddings", "sampler", "logits_processors"),
        *("checkpoint", "checkpoint_every", "on_checkpoint"),
    }
)
"""Options of ``Engine.stream`` that hold or hand out objects of a program."""


@frozen
class Line:
    """One request.  ``index`` counts requests from 0, ``where`` is its place for an error.

    ``options``: its own.  ``digest``: of the request with all that decides its answer.
    """

    index: int
    where: str
    id: str | int | None
    prompt: Any
    tools: Sequence[Mapping[str, Any]] | None
    options: Mapping[str, Any]
    digest: str

    @property
    def name(self) -> dict[str, Any]:
        """What its line in the output begins with."""
        told = {} if self.id is None else {"id": self.id}
        return {"index": self.index, **told, "digest": self.digest}


@frozen
class Defaults:
    """What the command line and the config say for every line.

    ``options``: keywords of ``Engine.stream``; ``config`` those that the config sets.
    ``answering``: what else an answer depends on: the model.
    """

    options: Mapping[str, Any]
    config: Mapping[str, Any]
    answering: Sequence[str | None]
    tools: Sequence[Mapping[str, Any]] | None = None
    system: str | None = None
    raw: bool = False


def read_lines(file: str, defaults: Defaults) -> list[Line]:
    """The requests in ``file``.

    :raises InputError: names the file, the line and what is wrong with it.
    """
    lines: list[Line] = []
    name = "standard input" if file == STDIN else file
    for number, text in enumerate(read_text(file, "batch").split("\n"), 1):
        if text.strip():
            lines.append(_line(len(lines), f"{name}, line {number}", text, defaults))
    if not lines:
        raise InputError(f"--batch {file}: holds no request")
    return lines


def _line(index: int, where: str, text: str, defaults: Defaults) -> Line:
    try:
        value = exactjson.loads(text)
    except (ValueError, RecursionError) as error:
        reason = str(error) or type(error).__name__
        raise InputError(f"{where}: is not JSON: {reason}") from error
    options = {"prompt": value} if isinstance(value, str) else value
    if not isinstance(options, dict):
        raise InputError(f"{where}: must be a string or an object with prompt or messages")
    options = dict(options)
    identity = options.pop("id", None)
    if not isinstance(identity, str | int | None):
        raise InputError(f"{where}: id must be a string or a whole number, not {identity!r}")
    prompt = _prompt(options, where, defaults)
    tools = options.pop("tools", None)
    tools = defaults.tools if tools is None else checked_tools(tools, f"{where}, tools")
    _check(options, where, defaults)
    digest = _digest([identity, prompt, tools, options], where, defaults)
    return Line(index, where, identity, prompt, tools, options, digest)


def _prompt(options: dict[str, Any], where: str, defaults: Defaults) -> Any:  # noqa: ANN401
    """Ids and raw text as they are, else messages; taken out of ``options``."""
    given = [name for name in ("prompt", "messages") if name in options]
    if len(given) != 1:
        raise InputError(f"{where}: give either prompt or messages")
    value = options.pop(given[0])
    if given == ["messages"]:
        if defaults.raw:
            raise InputError(f"{where}: --raw takes plain prompts, not messages")
        return _conversation(checked_messages(value, f"{where}, messages"), where, defaults)
    if not isinstance(value, str | list):
        raise InputError(f"{where}: prompt must be a string or a list of token ids")
    if not value:
        raise InputError(f"{where}: the prompt is empty: at least one token is needed")
    if isinstance(value, list) or defaults.raw:
        return value
    return _conversation([{"role": "user", "content": value}], where, defaults)


def _conversation(
    messages: list[Mapping[str, Any]], where: str, defaults: Defaults
) -> list[Mapping[str, Any]]:
    if defaults.system is None:
        return messages
    if any(message["role"] == "system" for message in messages):
        raise InputError(f"{where}: give --system or a system message, not both")
    return [{"role": "system", "content": defaults.system}, *messages]


def _check(options: dict[str, Any], where: str, defaults: Defaults) -> None:
    """Find what is illegal whatever the model."""
    from mlxfill.request.options import make_options

    for name in options:
        if name in OBJECTS:
            raise InputError(f"{where}: {name} is for programs: leave it out")
    if isinstance(options.get("logit_bias"), dict):  # JSON has no numbers as keys
        options["logit_bias"] = {_as_id(key): bias for key, bias in options["logit_bias"].items()}
    try:
        make_options(defaults.config, {**defaults.options, **options})
    except InputError as error:
        raise InputError(f"{where}: {error}") from error


def _as_id(key: str) -> int | str:
    return int(key) if key.isdecimal() else key


def _digest(request: list[Any], where: str, defaults: Defaults) -> str:
    whole = [*request, defaults.options, defaults.config, defaults.answering]
    try:
        text = exactjson.dumps(whole, sort_keys=True, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{where}: holds half of a surrogate pair: not UTF-8") from error
    return hashlib.sha256(text).hexdigest()[:16]
