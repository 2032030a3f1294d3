"""Which types a JSON schema leaves to an argument, and a value of one of them from its text.

Forms of calls that mark their arguments with tags write a text and a number alike.
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from decimal import Decimal
from typing import Any

MOST = 64
"""Schemas that are looked at for one argument: they may refer to each other without end."""
UNIONS = ("anyOf", "oneOf")
_INTEGER = re.compile(r"-?(0|[1-9]\d*)")
_WORDS = {"true": True, "false": False, "null": None, "none": None}


def branches(schema: object, root: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The schemas of which a value must satisfy one; at most ``MOST`` are looked at.

    :param root: the whole schema, into which references (``#/...``) lead.
    """
    found: list[Mapping[str, Any]] = []
    waiting, seen = deque([schema]), 0
    while waiting and seen < MOST:
        each, seen = waiting.popleft(), seen + 1
        if not isinstance(each, Mapping):
            found += [{}] if each is True else []
        elif isinstance(each.get("$ref"), str):
            waiting.append(_resolved(each["$ref"], root))
        elif union := [word for word in UNIONS if isinstance(each.get(word), list)]:
            waiting.extend(each[union[0]])
        else:
            found.append(each)
    return found


def _resolved(reference: str, root: Mapping[str, Any]) -> object:
    found: object = root
    for step in reference.removeprefix("#").split("/")[1:]:
        found = found.get(step) if isinstance(found, Mapping) else None
    return found


def types_of(schema: Mapping[str, Any]) -> list[str]:
    """The types that a schema names or means; a text where it says nothing."""
    named = schema.get("type")
    if isinstance(named, list):
        return [kind for kind in named if isinstance(kind, str)]
    if isinstance(named, str):
        return [named]
    return ["object" if "properties" in schema else "array" if "items" in schema else "string"]


def type_of(value: object) -> str:
    """The JSON type of a value."""
    if isinstance(value, bool):
        return "boolean"
    names = {str: "string", int: "integer", float: "number", list: "array", dict: "object"}
    return names.get(type(value), "null")


def value_from(text: str, schema: object, root: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON
    """The value of an argument that stands as ``text`` in a call.

    Integers are exact.  Where the schema allows a text and something else, the text is taken for
    something else only if JSON would write that so: ``1.10`` remains a text, ``1.1`` is a number.

    :param schema: of the argument; None: it is not known.
    :param root: the schema of all arguments.
    :returns: the text itself where it is of no type that the schema allows.
    """
    listed: list[Any] = []
    kinds: set[str] = set()
    for each in branches(schema, root):
        values = [each["const"]] if "const" in each else each.get("enum")
        if isinstance(values, list):
            listed += values
        else:
            kinds.update(types_of(each) if _tells(each) else _ANYTHING)
    if text in listed:
        return text
    kinds.update(map(type_of, listed))
    for kind in _ORDER:
        if kind in kinds or (schema is None and kind in _ANYTHING):
            with suppress(ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
                value = _READERS[kind](text)
                if "string" not in kinds or _written(value) == text:
                    return value
    return text


_ANYTHING = ("object", "array", "string")
"""Where nothing is said of its type, an argument is a text unless it is a JSON object or list."""


def _tells(schema: Mapping[str, Any]) -> bool:
    return not {"type", "properties", "items"}.isdisjoint(schema)


def _written(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _integer(text: str) -> int:
    text = text.strip()
    if _INTEGER.fullmatch(text):
        return int(text)
    number = Decimal(text) if len(text) < MOST else Decimal("NaN")
    if not number.is_finite() or abs(number.adjusted()) > MOST or number != int(number):
        raise ValueError(text)
    return int(number)


def _number(text: str) -> int | float:
    if _INTEGER.fullmatch(text.strip()):
        return int(text)
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


def _word(*words: str) -> Callable[[str], bool | None]:
    def read(text: str) -> bool | None:
        word = text.strip().lower()
        if word not in words:
            raise ValueError(text)
        return _WORDS[word]

    return read


def _container(kind: type) -> Callable[[str], Any]:
    def read(text: str) -> Any:  # noqa: ANN401 - JSON
        try:
            value = json.loads(text)
        except ValueError:
            value = ast.literal_eval(text.strip())  # as templates print that forget ``tojson``
        if not isinstance(value, kind):
            raise TypeError(text)
        return value

    return read


_READERS: Mapping[str, Callable[[str], Any]] = {
    "null": _word("null", "none"),
    "boolean": _word("true", "false"),
    "integer": _integer,
    "number": _number,
    "object": _container(dict),
    "array": _container(list),
}
_ORDER = tuple(_READERS)
