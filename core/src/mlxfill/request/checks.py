"""Rules for options that are no numbers, as those of ``mlxfill.rules``, and converters."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from mlxfill.errors import InputError
from mlxfill.request.results import PromptCache
from mlxfill.rules import Rule, is_whole, refuse

if TYPE_CHECKING:
    from attrs import Attribute


def has(*methods: str) -> Rule:
    """None, or an object with these methods; ``__call__`` for a function."""

    def check(_: object, attribute: Attribute[Any], value: object) -> None:
        missing = [m for m in methods if not callable(getattr(value, m, None))]
        if value is not None and missing:
            what = "a function" if missing[0] == "__call__" else f"an object with {missing[0]}()"
            refuse(attribute, what, value)

    return check


def name(_: object, attribute: Attribute[Any], value: object) -> None:
    """A string that is not empty, or None."""
    if value is not None and not (isinstance(value, str) and value):
        refuse(attribute, "a name", value)


def functions(_: object, attribute: Attribute[Any], value: Iterable[object]) -> None:
    """A list of functions."""
    wrong = [v for v in value if not callable(v)]
    if wrong:
        message = f"{attribute.name} must hold functions, not {wrong[0]!r}"
        raise InputError(message)


def ids(_: object, attribute: Attribute[Any], value: object) -> None:
    """Token ids, or None.  An iterator is none: looked at here, it would be empty later."""
    if value is None:
        return
    held = list(value) if isinstance(value, Collection) else [value]
    wrong = [v for v in held if not is_whole(v)]
    if wrong or not isinstance(value, Collection):
        refuse(attribute, "a list of token ids", (wrong or held)[0])


def path(_: object, attribute: Attribute[Any], value: object) -> None:
    """The path of a file, or None."""
    if value is not None and (not isinstance(value, str | os.PathLike) or not str(value)):
        refuse(attribute, "the path of a file", value)


def names(_: object, attribute: Attribute[Any], value: object) -> None:
    """A list of strings, or None; no iterator, as with ``ids``."""
    if value is None:
        return
    held = list(value) if isinstance(value, Collection) and not isinstance(value, str) else [value]
    wrong = [v for v in held if not isinstance(v, str)]
    if wrong or held == [value]:
        refuse(attribute, "a list of names", (wrong or held)[0])


def mapping(_: object, attribute: Attribute[Any], value: object) -> None:
    """Names and values."""
    if not isinstance(value, Mapping):
        refuse(attribute, "a mapping", value)


def caches(_: object, attribute: Attribute[Any], value: object) -> None:
    """A ``PromptCache``, a list of mlx-lm's cache entries, or None."""
    entries = value if isinstance(value, list | tuple) else ()
    legal = isinstance(value, PromptCache | list | tuple | None)
    # Looked up in the class: an empty entry fails to tell its state.
    if not legal or any("state" not in dir(entry) for entry in entries):
        refuse(attribute, "a PromptCache or an mlx-lm prompt cache", value)


def own_caches(_: object, attribute: Attribute[Any], value: object) -> None:
    """A list of mlx-lm's cache entries, or None."""
    if isinstance(value, PromptCache):
        raise InputError(f"{attribute.name} is for an mlx-lm prompt cache: give this one as cache")
    caches(_, attribute, value)


def embeddings(_: object, attribute: Attribute[Any], value: object) -> None:
    """An array ``[L, H]``, or None."""
    if value is not None and getattr(value, "ndim", None) != 2:  # noqa: PLR2004
        refuse(attribute, "an array of shape [L, H]", value)


def none_is_empty(value: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """The mapping; None stands for one without content."""
    return {} if value is None else value


def listed(value: object) -> tuple[Any, ...]:
    """A tuple; None is empty, and what is no list is left to the rule."""
    return tuple(value) if isinstance(value, Iterable) else (() if value is None else (value,))


def stops(value: str | Iterable[str] | None) -> tuple[str, ...]:
    """One stop string or several."""
    held = [value] if isinstance(value, str) or not isinstance(value, Iterable) else list(value)
    found = tuple(stop for stop in held if stop is not None)
    for stop in found:
        if not isinstance(stop, str) or not stop:
            message = f"stop must hold non-empty strings, not {stop!r}"
            raise InputError(message)
    return found
