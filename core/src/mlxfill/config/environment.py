"""Overrides from the environment: ``MLXFILL_<SECTION>__<KEY>``."""

from __future__ import annotations

import tomllib
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import frozen

from mlxfill.config.annotations import COLLECTIONS, classes_in

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

PREFIX = "MLXFILL_"


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
    of one part are not ours to judge), ``MLXFILL_PLUGINS__SPEC_NGRAM__K`` one of the plugin
    ``spec-ngram``.  An empty variable overrides nothing.
    """
    for variable, text in sorted(environ.items()):
        if variable.startswith(PREFIX) and text:
            path = _path(variable.removeprefix(PREFIX).lower())
            if len(path) > 1 or path[0] in plain_keys:
                yield Override(variable, path, EnvText(text))


def _path(name: str) -> tuple[str, ...]:
    match name.split("__"):
        case ["plugins"]:
            return ("plugins", "enabled")
        case ["plugins", plugin, *keys] if keys:
            return ("plugins", plugin.replace("_", "-"), *keys)
        case parts:
            return tuple(parts)


def interpret(text: EnvText, kind: Any) -> object:  # noqa: ANN401 - any annotation
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
