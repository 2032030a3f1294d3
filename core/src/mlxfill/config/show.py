"""Every value of a config in the words of a config file, with the place it came from."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import attrs

from mlxfill.config.annotations import NO_KEY, TABLES, key_of
from mlxfill.config.document import KeyPath, dotted, leaves

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mlxfill.config.sections import Config

HIDDEN = "***"
"""Stands for the value of an attribute with ``repr=False``: what is shown here is passed on."""


@attrs.frozen
class Entry:
    """One key: its full path, its value as TOML, and ``default`` or the place it came from."""

    key: str
    value: str
    source: str


def entries(config: Config, settings: Mapping[str, Any]) -> Iterator[Entry]:
    """All keys of ``config``.

    :param settings: the checked settings of the plugins that are known by now; the tables of
        others are shown as they were written.
    """
    written = {name: t for name, t in config.plugins.tables.items() if settings.get(name) is None}
    checked = {name: instance for name, instance in settings.items() if instance is not None}
    for path, value in [
        *_values(config, ()),
        *(
            pair
            for name, instance in checked.items()
            for pair in _values(instance, ("plugins", name))
        ),
        *leaves(written, ("plugins",)),
    ]:
        key = dotted(path)
        yield Entry(key, _toml(value), config.sources.get(key, "default"))


def _values(instance: attrs.AttrsInstance, at: KeyPath) -> Iterator[tuple[KeyPath, object]]:
    for attribute in attrs.fields(type(instance)):
        if {NO_KEY, TABLES} & set(attribute.metadata):
            continue
        path = (*at, key_of(attribute))
        value = getattr(instance, attribute.name)
        if attrs.has(type(value)):
            yield from _values(value, path)
        else:
            secret = value is not None and not attribute.repr
            yield path, HIDDEN if secret else value


def _toml(value: object) -> str:
    """``value`` as TOML writes it; TOML has no word for a key that is not set."""
    return "(not set)" if value is None else json.dumps(value, ensure_ascii=False, default=str)
