"""What a type annotation says, to a reader of text and to a reader of errors."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

import attrs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attrs import Attribute

TABLES = "tables"
"""Metadata mark of the attribute that takes the tables whose names no attribute has."""
NO_KEY = "no key"
"""Metadata mark of an attribute that stands in no file."""

COLLECTIONS = frozenset({list, tuple, set, frozenset, Sequence, AbstractSet})
_WORDS = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    Path: "text",
}


def key_of(attribute: Attribute[Any]) -> str:
    """The key that an attribute has in a file."""
    return (attribute.alias or attribute.name).rstrip("_")


def classes_in(kind: object) -> Iterator[type]:
    """The classes that an annotation names; of a container only the container."""
    origin = get_origin(kind)
    if origin is Literal:
        yield from map(type, get_args(kind))
    elif origin in (Annotated, Union, UnionType):
        for part in get_args(kind):
            yield from classes_in(part)
    elif isinstance(named := origin or kind, type):
        yield named


def kind_of_values(kind: object) -> object | None:
    """What the values of a table are: ``int`` for ``dict[str, int] | None``; None for no table."""
    parts = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    return next((get_args(part)[1] for part in parts if get_origin(part) is dict), None)


def in_words(kind: object) -> str:
    """What a value of this type is called in a config file: ``a list of text``."""
    origin = get_origin(kind)
    if origin is Literal:
        return _alternatives([repr(value) for value in get_args(kind)])
    if origin in (Union, UnionType):
        return _alternatives([in_words(part) for part in get_args(kind) if part is not NoneType])
    if origin in COLLECTIONS:
        return f"a list of {in_words(get_args(kind)[0]).removeprefix('a ')}"
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _alternatives([repr(member.value) for member in kind])
    if origin is dict or (isinstance(kind, type) and attrs.has(kind)):
        return "a table"
    word = _WORDS.get(kind) if isinstance(kind, type) else None
    return word or str(getattr(kind, "__name__", kind))


def _alternatives(words: list[str]) -> str:
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
