"""Rules for the values of settings and options, as attrs validators.

::

    from attrs import field, frozen
    from mlxfill import rules

    @frozen
    class MySettings:
        depth: int = field(default=10, validator=rules.whole(1, 64))
        match: str = field(default="recent", validator=rules.one_of("first", "recent"))

Each raises ``InputError`` with one line that names the value and what would be legal, as in
``depth must be a whole number from 1 to 64, not 0``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeGuard

from mlxfill.errors import InputError, shown

if TYPE_CHECKING:
    from attrs import Attribute

Rule = Callable[[Any, Any, Any], None]
"""An attrs validator: ``(instance, attribute, value)``; raises ``InputError``."""
LONGEST = 200
"""Characters of a value that an error shows."""


def whole(low: int, high: int | None = None, *, optional: bool = False) -> Rule:
    """A whole number of ``low`` to ``high``, both legal; None as well where ``optional``."""
    legal = f"of at least {low}" if high is None else f"from {low} to {high}"

    def check(_: object, attribute: Attribute[Any], value: object) -> None:
        if value is None and optional:
            return
        if not is_whole(value) or value < low or (high is not None and value > high):
            refuse(attribute, f"a whole number {legal}", value)

    return check


def number(low: float, high: float | None = None, *, optional: bool = False) -> Rule:
    """A number of ``low`` to ``high``, both legal, never NaN; None where ``optional``."""
    legal = f"at least {low:.12g}" if high is None else f"{low:.12g} to {high:.12g}"

    def check(_: object, attribute: Attribute[Any], value: object) -> None:
        if value is None and optional:
            return
        if not _is_number(value) or not low <= value or (high is not None and value > high):
            refuse(attribute, legal, value)

    return check


def one_of(*values: object) -> Rule:
    """One of a few; None among them is not mentioned, since it means that nothing was given."""
    *first, last = [repr(value) for value in values if value is not None]
    words = f"{', '.join(first)} or {last}" if first else last

    def check(_: object, attribute: Attribute[Any], value: object) -> None:
        # True == 1 and 8.0 == 8, but neither is a number of bits.
        if not any(value == legal and type(value) is type(legal) for legal in values):
            refuse(attribute, words, value)

    return check


def filled(_: object, attribute: Attribute[Any], value: object) -> None:
    """Text of at least one character, or None: empty text is a slip, as of an unset variable."""
    if value == "":
        raise InputError(f"{attribute.name.rstrip('_')} is empty: give a value, or leave it out")


def boolean(_: object, attribute: Attribute[Any], value: object) -> None:
    """True or False."""
    if not isinstance(value, bool):
        refuse(attribute, "true or false", value)


def is_whole(value: object) -> TypeGuard[int]:
    """Whether it is an ``int`` and no ``bool``."""
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def refuse(attribute: Attribute[Any], legal: str, value: object) -> None:
    """Raise the error of a rule: ``NAME must be LEGAL, not VALUE``."""
    raise InputError(f"{attribute.name.rstrip('_')} must be {legal}, not {shown(value, LONGEST)}")
