"""Tables to instances of attrs classes, with every mistake found on the way."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, cast

import attrs
from cattrs import Converter
from cattrs.strategies import configure_union_passthrough

from mlxfill.config.annotations import (
    COLLECTIONS,
    NO_KEY,
    TABLES,
    classes_in,
    in_words,
    key_of,
    kind_of_values,
)
from mlxfill.config.document import KeyPath, dotted
from mlxfill.config.environment import EnvText, interpret
from mlxfill.errors import ConfigError
from mlxfill.nearest import did_you_mean

if TYPE_CHECKING:
    from attrs import Attribute

T = TypeVar("T")


def structure(
    kind: type[T], table: Mapping[str, Any], at: KeyPath, place: Callable[[KeyPath], str]
) -> T:
    """The ``table`` at the path ``at`` as an instance of the attrs class ``kind``.

    :param place: tells for a path where its value came from.
    :raises ConfigError: one line for each key that is unknown, missing, or whose value is of the
        wrong type or not legal.
    """
    instance, problems = examine(kind, table, at, place)
    if problems:
        raise ConfigError("\n".join(problems))
    return cast("T", instance)


def examine(
    kind: type[T], table: Mapping[str, Any], at: KeyPath, place: Callable[[KeyPath], str]
) -> tuple[T | None, list[str]]:
    """As ``structure``: what the legal values make, and a line for each mistake beside them.

    :returns: None in the place of the instance when a value that it cannot do without is wrong.
    """
    reader = _Reader(place)
    instance = reader.read(kind, table, at)
    return cast("T | None", instance), reader.problems


class _Reader:
    """Reads a tree of tables and collects what is wrong in it."""

    def __init__(self, place: Callable[[KeyPath], str]) -> None:
        self._place = place
        self.problems: list[str] = []

    def read(self, kind: type, table: Mapping[str, Any], at: KeyPath) -> object:
        """An instance of ``kind``, as far as the table is right; None when that makes none."""
        before = len(self.problems)
        attributes = _attributes(kind)
        values = self._rest(kind, attributes, table, at)
        for key, attribute in attributes.items():
            if key in table:
                told = len(self.problems)
                value = self._value(attribute, table[key], (*at, key))
                if value is not None or len(self.problems) == told:
                    values[attribute.alias or attribute.name] = value
            elif attribute.default is attrs.NOTHING:
                self._complain((*at, key), "is missing")
        try:
            return kind(**values)
        except Exception as error:  # noqa: BLE001 - a plugin's own rules raise what they like
            if len(self.problems) == before:
                self._complain(at, f"is not legal: {error}")
            return None

    def _rest(
        self, kind: type, attributes: Mapping[str, Any], table: Mapping[str, Any], at: KeyPath
    ) -> dict[str, Any]:
        """Take the keys that no attribute has: tables if the class wants them, else mistakes."""
        rest = {key: value for key, value in table.items() if key not in attributes}
        catch_all = _catch_all(kind)
        for key, value in rest.items():
            if catch_all is None or not isinstance(value, Mapping):
                hint = did_you_mean(key, attributes) or _home(attributes, key, value)
                hint = hint or f"; legal: {', '.join(attributes) or 'none'}"
                self._complain((*at, key), f"is an unknown key{hint}")
        if catch_all is None:
            return {}
        return {catch_all: {key: v for key, v in rest.items() if isinstance(v, Mapping)}}

    def _value(self, attribute: Attribute[Any], raw: object, at: KeyPath) -> object:
        kind = attribute.type or Any
        if isinstance(kind, type) and attrs.has(kind) and isinstance(raw, Mapping):
            return self.read(kind, raw, at)
        told = len(self.problems)
        value = self._converted(raw, kind, at)
        if len(self.problems) == told:
            self._check(attribute, value, at)
        return value

    def _converted(self, raw: object, kind: object, at: KeyPath) -> object:
        """``raw`` as the annotation ``kind``; None, and a mistake, when it is of a wrong type."""
        value = interpret(raw, kind) if isinstance(raw, EnvText) else raw
        try:
            return _typed(value, kind)
        except Exception:  # noqa: BLE001 - whatever a converter raises, the value is of a wrong type
            told, inner = len(self.problems), kind_of_values(kind)
            if inner is not None and isinstance(value, Mapping):
                for key, each in value.items():
                    self._converted(each, inner, (*at, key))
            if len(self.problems) == told:
                self._complain(at, f"must be {in_words(kind)}, not {reprlib.repr(value)}")
            return None

    def _check(self, attribute: Attribute[Any], value: object, at: KeyPath) -> None:
        """Apply the attribute's rule now, so that all mistakes are found at once.

        A rule that needs the whole instance, or a converted value, is applied when that is made.
        """
        if attribute.validator is None or attribute.converter is not None:
            return
        try:
            attribute.validator(None, attribute, value)
        except (ValueError, TypeError) as error:
            message = str(error.args[0] if error.args else error)
            for subject in (f"{attribute.name} ", f"'{attribute.name}' "):
                message = message.removeprefix(subject)
            self._complain(at, message)
        except AttributeError:
            pass

    def _complain(self, at: KeyPath, what: str) -> None:
        self.problems.append(" ".join(f"{self._place(at)}: {dotted(at)} {what}".split()))


def _attributes(kind: type) -> dict[str, Attribute[Any]]:
    """The attributes of a class by the keys that they have in a file."""
    return {
        key_of(attribute): attribute
        for attribute in attrs.fields(attrs.resolve_types(kind))
        if attribute.init and not {NO_KEY, TABLES} & set(attribute.metadata)
    }


def _catch_all(kind: type) -> str | None:
    """The attribute that takes the tables whose names no attribute has; None without one."""
    return next((a.name for a in attrs.fields(kind) if TABLES in a.metadata), None)


def _home(attributes: Mapping[str, Attribute[Any]], key: str, value: object) -> str:
    """Where a table belongs that stands beside the one that takes tables; "" for anything else."""
    homes = [
        name
        for name, attribute in attributes.items()
        if attrs.has(kind := attribute.type or Any) and _catch_all(kind)
    ]
    is_table = isinstance(value, Mapping) and value and homes
    return f"; a plugin's settings stand in [{homes[0]}.{key}]" if is_table else ""


def _typed(value: object, kind: Any) -> object:  # noqa: ANN401 - any annotation
    """``value`` as an instance of the annotation ``kind``; raises whatever it likes."""
    classes = set(classes_in(kind))
    if (
        classes & COLLECTIONS
        and isinstance(value, str | Mapping)
        and not isinstance(value, tuple(classes - COLLECTIONS))
    ):
        raise TypeError
    return _CONVERTER.structure(value, kind)


def _exact(value: object, kind: type) -> object:
    """TOML has types: text is no number, and true is not 1."""
    if type(value) is not kind:
        raise TypeError
    return value


def _number(value: object, _: type) -> float:
    if type(value) not in (int, float) or not math.isfinite(cast("float", value)):
        raise TypeError
    return float(cast("float", value))


def _converter() -> Converter:
    converter = Converter(forbid_extra_keys=True, detailed_validation=False)
    configure_union_passthrough(str | bool | int | float | None, converter)
    for kind in (str, bool, int):
        converter.register_structure_hook(kind, _exact)
    converter.register_structure_hook(float, _number)
    return converter


_CONVERTER = _converter()
