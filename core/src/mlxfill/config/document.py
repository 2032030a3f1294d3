"""File and environment laid over each other, each value with the place it came from."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from attrs import field, frozen

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mlxfill.config.environment import Override

KeyPath = tuple[str, ...]
"""Where a value stands: the names of the tables around it, then its key."""


@frozen
class Document:
    """Nested tables, and the place that the value at each dotted path came from."""

    values: dict[str, Any]
    sources: dict[str, str] = field(factory=dict)


def compose(place: str, values: Mapping[str, Any], overrides: Iterable[Override]) -> Document:
    """What stands at ``place``, and over it the overrides."""
    copied = _copy(values)
    if isinstance(copied.get("plugins"), list | tuple):  # short for [plugins] enabled
        copied["plugins"] = {"enabled": copied["plugins"]}
    document = Document(copied, {dotted(path): place for path, _ in leaves(copied)})
    for override in overrides:
        _lay_over(document, override)
    return document


def _copy(table: Mapping[str, Any]) -> dict[str, Any]:
    return {str(key): _copy(v) if isinstance(v, Mapping) else v for key, v in table.items()}


def _lay_over(document: Document, override: Override) -> None:
    table = document.values
    for name in override.path[:-1]:
        table = table.setdefault(name, {})
        if not isinstance(table, dict):  # the file has no table here: an error of its own
            return
    table[override.path[-1]] = override.text
    document.sources[dotted(override.path)] = override.variable


def leaves(table: Mapping[str, Any], at: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    """KeyPath and value of everything in nested tables that is no table itself."""
    for key, value in table.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, (*at, key))
        else:
            yield (*at, key), value


def dotted(path: KeyPath) -> str:
    """A path as TOML writes it, always one line."""
    return ".".join(k if re.fullmatch(r"[A-Za-z0-9_-]+", k) else json.dumps(k) for k in path)


def source_of(sources: Mapping[str, str], path: KeyPath) -> str | None:
    """The place of the value at a path, of the first one inside a table, or of a table around."""
    key = dotted(path)
    inside = (place for name, place in sources.items() if name.startswith(f"{key}."))
    around = (sources[outer] for n in range(len(path)) if (outer := dotted(path[:n])) in sources)
    return sources.get(key) or next(inside, None) or next(around, None)
