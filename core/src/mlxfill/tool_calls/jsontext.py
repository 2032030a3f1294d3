"""Calls in JSON, read so that nothing a model said is lost."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, TypeAlias

Found: TypeAlias = dict[str, Any]
BETWEEN = " \n\t,;"
_ARGUMENTS = ("arguments", "parameters")
_NAMES = ("name", "tool_name")
_BESIDE = {"id", "tool_call_id", "type", "index"}
"""Keys of a call that may be left out without loss."""


def as_call(found: object) -> Found:
    """A call as ``{"name": ..., "arguments": {...}}``, with the ``id`` that the model gave.

    :param found: what JSON or a parser says; arguments may be JSON text, and stand under
        ``parameters``; ``{NAME: ARGUMENTS}`` is a call as well.
    :raises ValueError: it is no call, or says something that would be lost.
    """
    if not isinstance(found, Mapping):
        raise ValueError("no call")  # noqa: TRY004 - what a reader raises
    if isinstance(found.get("function"), Mapping) and not set(found) - {"function", *_BESIDE}:
        return as_call({**{key: found[key] for key in {"id"} & set(found)}, **found["function"]})
    names = [key for key in _NAMES if key in found]
    given = [key for key in _ARGUMENTS if key in found]
    if not names and len(found) == 1:
        ((name, arguments),) = found.items()
    elif len(names) == 1 and len(given) <= 1 and not set(found) - {*names, *given, *_BESIDE}:
        name, arguments = found[names[0]], found.get(given[0]) if given else None
    else:
        raise ValueError("no call")
    if isinstance(arguments, str):
        arguments = decoded(arguments) if arguments.strip() else None
    arguments = {} if arguments is None else arguments
    if not isinstance(name, str) or not name or not isinstance(arguments, dict):
        raise ValueError("no call")
    call = {"name": name, "arguments": arguments}
    return {**call, "id": found["id"]} if isinstance(found.get("id"), str) else call


def unique(pairs: Sequence[tuple[str, Any]]) -> Found:
    """The pairs as a mapping.  Raises ``ValueError`` for a key that stands there twice."""
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a key stands there twice")
    return made


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON number")


DECODER = json.JSONDecoder(object_pairs_hook=unique, parse_constant=_refuse)


def decoded(text: str) -> Any:  # noqa: ANN401 - JSON
    """The value of a JSON text.  Raises ``ValueError`` as ``unique`` does, and for NaN."""
    return DECODER.decode(text)


def json_calls(text: str, _: object = None) -> list[Any]:
    """Calls that are JSON, one after the other or in a list."""
    calls: list[Any] = []
    rest = text.strip()
    while rest:
        value, end = DECODER.raw_decode(rest)
        calls += value if isinstance(value, list) else [value]
        rest = rest[end:].lstrip(BETWEEN)
    return [as_call(each) for each in some(calls)]


def some(calls: list[Any]) -> list[Any]:
    """The same calls.  Raises ``ValueError`` for none."""
    if not calls:
        raise ValueError("no call")
    return calls


def matched(pattern: re.Pattern[str], text: str, at: int = 0) -> re.Match[str]:
    """What ``pattern`` matches at a place of a text.  Raises ``ValueError`` where it does not."""
    found = pattern.match(text, at)
    if found is None:
        raise ValueError("no call")
    return found
