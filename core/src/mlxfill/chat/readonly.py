"""Messages, tools and options as plugins see them: to read, not to change.

What a plugin could change there would reach the caller's next turn, and the spans that a trusted
plugin asserts.  Sealed values are dicts and lists to templates and to ``json``; a copy of one is
an ordinary one.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any, Never, TypeVar

T = TypeVar("T")


def _refuse(self: object, *_: object, **__: object) -> Never:
    kind = "dict" if isinstance(self, dict) else "list"
    raise TypeError(f"a request is read, not changed: copy this {kind} first")


class SealedDict(dict[Any, Any]):
    """A dict that stays as it is."""

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __copy__(self) -> dict[Any, Any]:
        return dict(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[Any, Any]:
        return {key: deepcopy(value, memo) for key, value in self.items()}

    def __reduce__(self) -> tuple[type, tuple[Any, ...]]:
        return dict, (dict(self),)


class SealedList(list[Any]):
    """A list that stays as it is."""

    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
    append = clear = extend = insert = pop = remove = reverse = sort = _refuse

    def __copy__(self) -> list[Any]:
        return list(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> list[Any]:
        return [deepcopy(value, memo) for value in self]

    def __reduce__(self) -> tuple[type, tuple[Any, ...]]:
        return list, (list(self),)


def sealed(value: T) -> T:
    """A copy of ``value`` in which all dicts and lists are sealed."""
    made: Any = value
    given: Any = value
    if isinstance(value, dict):
        made = SealedDict((key, sealed(each)) for key, each in value.items())
    elif isinstance(value, list):
        made = SealedList(sealed(each) for each in value)
    elif type(value) is tuple:
        made = tuple(sealed(each) for each in given)
    return made  # type: ignore[no-any-return]
