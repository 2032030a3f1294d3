"""Overrides from the environment: ``MLXFILL_<SECTION>__<KEY>``."""

from __future__ import annotations

import tomllib
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import frozen

from mlxfill.config.annotations import COLLECTIONS, classes_in
from mlxfill.config.location import VARIABLE
from mlxfill.nearest import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

PREFIX = "MLXFILL_"
NO_SETTINGS = frozenset({VARIABLE, "MLXFILL_TRACE", "MLXFILL_API_KEY"})
"""Variables that are read, and override no key."""


class EnvText(str):
    """Text of an environment variable; what it means depends on the type of its key."""

    __slots__ = ()


@frozen
class Override:
    """One variable that overrides the key at ``path``."""

    variable: str
    path: tuple[str, ...]
    text: EnvText


def overrides(environ: Mapping[str, str], plain_keys: Collection[str]) -> Iterator[Override]:
    """The overrides in ``environ``, by name of the variable.

    ``MLXFILL_MODEL`` overrides a key outside of all tables (one of ``plain_keys``; other variables
    of one part are not ours to judge), ``MLXFILL_PLUGINS__MY_PLUGIN__K`` one of the plugin
    ``my-plugin``.  An empty variable overrides nothing.
    """
    for variable, text in sorted(environ.items()):
        if variable.startswith(PREFIX) and text:
            path = _path(variable.removeprefix(PREFIX).lower())
            if len(path) > 1 or path[0] in plain_keys:
                yield Override(variable, path, EnvText(text))


def unread(environ: Mapping[str, str], keys: Iterable[str]) -> Iterator[str]:
    """A line for each variable in ``environ`` that has our prefix and that nothing here reads.

    No mistake for sure, since other programs may share the prefix.

    :param keys: the dotted paths of all keys, for the spelling that was meant.
    """
    known = {variable_of(key) for key in keys} | NO_SETTINGS | {f"{PREFIX}PLUGINS"}
    for variable, text in sorted(environ.items()):
        if variable.startswith(PREFIX) and "__" not in variable and text and variable not in known:
            hint = did_you_mean(variable, known)
            yield f"the variable {variable} is not read by mlxfill, and sets nothing{hint}"


def variable_of(key: str) -> str:
    """The variable that overrides the key at a dotted path."""
    return PREFIX + key.replace(".", "__").replace("-", "_").upper()


def _path(name: str) -> tuple[str, ...]:
    match name.split("__"):
        case ["plugins"]:
            return ("plugins", "enabled")
        case ["plugins", plugin, *keys] if keys:
            return ("plugins", plugin.replace("_", "-"), *keys)
        case parts:
            return tuple(parts)


def interpret(text: EnvText, kind: object) -> object:
    """What ``text`` means for a key of type ``kind``.

    Text for a key that takes text, a list also as words between commas, else a TOML value.
    """
    classes = set(classes_in(kind))
    if classes & COLLECTIONS:
        value = _toml(text)
        return value if isinstance(value, list) else [w.strip() for w in text.split(",")]
    if any(issubclass(k, str | Path | Enum) for k in classes):
        return str(text)
    return _toml(text)


def _toml(text: str) -> object:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return str(text)
