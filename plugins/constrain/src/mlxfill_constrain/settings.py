"""The table ``[plugins.constrain]`` of the config file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

from attrs import field, frozen

from mlxfill import InputError

if TYPE_CHECKING:
    from attrs import Attribute

Whitespace = Literal["spaced", "compact", "flexible"]
"""Between the parts of JSON: ``{"a": 1, "b": 2}``, ``{"a":1,"b":2}``, or as the model likes."""


def _one_of_whitespaces(_: object, attribute: Attribute[str], value: object) -> None:
    if value not in get_args(Whitespace):
        legal = ", ".join(f'"{name}"' for name in get_args(Whitespace))
        raise InputError(f"{attribute.name} must be one of {legal}, not {value!r}")


def _boolean(_: object, attribute: Attribute[bool], value: object) -> None:
    if not isinstance(value, bool):
        raise InputError(f"{attribute.name} must be true or false, not {value!r}")


def _size(_: object, attribute: Attribute[int], value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InputError(f"{attribute.name} must be a whole number of at least 1, not {value!r}")


@frozen
class ConstrainSettings:
    """How replies are held.  Raises ``InputError`` that names the value and its legal range.

    ``forced``: append what the grammar leaves no choice about, several tokens at a time; off, the
    same tokens are decoded one by one.
    ``whitespace``: between the parts of JSON; what is fixed is also forced.
    ``max_size``: longest schema or grammar, in characters.
    """

    forced: bool = field(default=True, validator=_boolean)
    whitespace: Whitespace = field(default="spaced", validator=_one_of_whitespaces)
    max_size: int = field(default=200_000, validator=_size)
