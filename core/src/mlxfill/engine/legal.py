"""What values an option may have: attrs validators and converters that name value and remedy."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from mlxfill.errors import InputError

Check = Any
"""An attrs validator: ``(instance, attribute, value)``, raises ``InputError``."""


def at_least(low: int, *, optional: bool = False) -> Check:
    """A whole number of at least ``low``, or None where ``optional``."""

    def check(_: object, attribute: Any, value: object) -> None:  # noqa: ANN401
        if value is None and optional:
            return
        if not is_whole(value) or value < low:  # type: ignore[operator]
            message = f"{attribute.name} must be a whole number of at least {low}, not {value!r}"
            raise InputError(message)

    return check


def one_of(*values: object) -> Check:
    """One of a few; None among them is not mentioned, since it means that nothing was given."""

    def check(_: object, attribute: Any, value: object) -> None:  # noqa: ANN401
        # True == 1 and 8.0 == 8, but neither is a number of bits.
        if not any(value == legal and type(value) is type(legal) for legal in values):
            *first, last = [repr(v) for v in values if v is not None]
            message = f"{attribute.name} must be {', '.join(first)} or {last}, not {value!r}"
            raise InputError(message)

    return check


def has(*methods: str) -> Check:
    """None, or an object with these methods; ``__call__`` for a function."""

    def check(_: object, attribute: Any, value: object) -> None:  # noqa: ANN401
        missing = [m for m in methods if not callable(getattr(value, m, None))]
        if value is not None and missing:
            what = "a function" if missing[0] == "__call__" else f"an object with {missing[0]}()"
            message = f"{attribute.name} must be {what}, not {value!r}"
            raise InputError(message)

    return check


def name(_: object, attribute: Any, value: object) -> None:  # noqa: ANN401
    """A string, or None."""
    if value is not None and not isinstance(value, str):
        message = f"{attribute.name} must be a name, not {value!r}"
        raise InputError(message)


def functions(_: object, attribute: Any, value: Iterable[object]) -> None:  # noqa: ANN401
    """A list of functions."""
    wrong = [v for v in value if not callable(v)]
    if wrong:
        message = f"{attribute.name} must hold functions, not {wrong[0]!r}"
        raise InputError(message)


def ids(_: object, attribute: Any, value: object) -> None:  # noqa: ANN401
    """Token ids, or None."""
    if value is None:
        return
    held = list(value) if isinstance(value, Iterable) else [value]
    wrong = [v for v in held if not is_whole(v)]
    if wrong or not isinstance(value, Iterable):
        message = f"{attribute.name} must be a list of token ids, not {(wrong or held)[0]!r}"
        raise InputError(message)


def path(_: object, attribute: Any, value: object) -> None:  # noqa: ANN401
    """The path of a file, or None."""
    if value is not None and (not isinstance(value, str | os.PathLike) or not str(value)):
        message = f"{attribute.name} must be the path of a file, not {value!r}"
        raise InputError(message)


def is_whole(value: object) -> bool:
    """Whether it is an ``int`` and no ``bool``."""
    return isinstance(value, int) and not isinstance(value, bool)


def names(_: object, attribute: Any, value: object) -> None:  # noqa: ANN401
    """A list of strings, or None."""
    if value is None:
        return
    held = list(value) if isinstance(value, Iterable) and not isinstance(value, str) else [value]
    wrong = [v for v in held if not isinstance(v, str)]
    if wrong or held == [value]:
        message = f"{attribute.name} must be a list of names, not {(wrong or held)[0]!r}"
        raise InputError(message)


def listed(value: Iterable[Any] | None) -> tuple[Any, ...]:
    """A tuple; None is empty."""
    return tuple(value or ())


def stops(value: str | Iterable[str] | None) -> tuple[str, ...]:
    """One stop string or several."""
    held = [value] if isinstance(value, str) or not isinstance(value, Iterable) else list(value)
    found = tuple(stop for stop in held if stop is not None)
    for stop in found:
        if not isinstance(stop, str) or not stop:
            message = f"stop must hold non-empty strings, not {stop!r}"
            raise InputError(message)
    return found
