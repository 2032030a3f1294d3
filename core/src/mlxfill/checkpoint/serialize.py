"""Values as JSON with the arrays beside it, and back; cache entries by their attributes.

A cache entry is stored by its attributes, whatever its class: what a forward may change is there
by construction.  It is restored into a fresh entry of the same class, so that a file never says
which code to run; only the kinds of mlx-lm itself are made by name (a quantized entry takes the
place of a fresh one).
"""

from __future__ import annotations

import copy
import reprlib
from collections.abc import Mapping, MutableMapping
from typing import Any

import mlx.core as mx
from mlx_lm.models import cache as mlx_lm_cache

from mlxfill.errors import CheckpointError

ARRAY, LIST, TUPLE, TABLE, ENTRY, VALUES = "array", "list", "tuple", "table", "entry", "values"
_PLAIN = (bool, int, float, str)


def packed(value: object, path: str, arrays: MutableMapping[str, mx.array]) -> object:
    """``value`` JSON-ready; the arrays in it are added to ``arrays`` under names below ``path``.

    Arrays are handles of their own: forwards that follow do not change them.

    :raises CheckpointError: it holds something that is neither array nor plain data.
    """
    if isinstance(value, mx.array):
        arrays[path] = copy.copy(value)
        return {ARRAY: path}
    if value is None or type(value) in _PLAIN:
        return value
    for kind in _PLAIN:
        if isinstance(value, kind):
            return kind(value)
    if isinstance(value, list | tuple):
        parts = [packed(each, f"{path}.{at}", arrays) for at, each in enumerate(value)]
        return {TUPLE if isinstance(value, tuple) else LIST: parts}
    if isinstance(value, Mapping):
        pairs = [[_key(k, path), packed(v, f"{path}.{k}", arrays)] for k, v in value.items()]
        return {TABLE: pairs}
    if hasattr(value, "is_trimmable") and hasattr(value, "__dict__"):
        inside = {k: packed(v, f"{path}.{k}", arrays) for k, v in vars(value).items()}
        return {ENTRY: type(value).__name__, VALUES: inside}
    raise CheckpointError(f"a checkpoint cannot hold the {type(value).__name__} at {path}")


def unpacked(
    stored: object,
    arrays: Mapping[str, mx.array],
    fresh: object = None,
) -> Any:  # noqa: ANN401
    """What ``packed`` was given.

    :param fresh: what stands in its place in a fresh cache; entries are restored into it.
    :raises CheckpointError: it is of other kinds of entries.
    """
    if not isinstance(stored, dict):
        if stored is not None and type(stored) not in _PLAIN:
            raise CheckpointError(f"it holds {reprlib.repr(stored)} where a value is to be")
        return stored
    if stored.keys() == {ENTRY, VALUES}:
        values = stored[VALUES]
        if not isinstance(values, dict):
            raise CheckpointError(f"it holds {reprlib.repr(values)}, no dict")
        return _restored(fresh, stored[ENTRY], values, arrays)
    if len(stored) != 1 or not {ARRAY, LIST, TUPLE, TABLE}.issuperset(stored):
        raise CheckpointError(f"it holds {reprlib.repr(stored)}, a value of an unknown kind")
    ((kind, content),) = stored.items()
    if kind == ARRAY:
        if not isinstance(content, str) or content not in arrays:
            raise CheckpointError(f"it has no array {reprlib.repr(content)}")
        return copy.copy(arrays[content])
    if kind == TABLE:
        beside = fresh if isinstance(fresh, Mapping) else {}
        return {
            _key(key, TABLE): unpacked(value, arrays, beside.get(key))
            for key, value in (_pair(each) for each in _listed(content))
        }
    parts = (
        fresh if isinstance(fresh, list | tuple) and len(fresh) == len(_listed(content)) else None
    )
    beside_each = parts or [None] * len(_listed(content))
    each = [unpacked(v, arrays, part) for v, part in zip(content, beside_each, strict=True)]
    return tuple(each) if kind == TUPLE else each


def _listed(content: object) -> list[Any]:
    """``content``, which must be a list."""
    if not isinstance(content, list):
        raise CheckpointError(f"it holds {reprlib.repr(content)}, no list")
    return content


def _pair(content: object) -> tuple[Any, Any]:
    key, value = _listed(content) if isinstance(content, list) and len(content) == 2 else (None, 0)  # noqa: PLR2004
    return key, value


def restore_caches(caches: list[Any], stored: object, arrays: Mapping[str, mx.array]) -> None:
    """Give the fresh prompt cache ``caches`` what another held when it was ``packed``.

    :raises CheckpointError: it was of other kinds of entries.
    """
    content = _listed(stored.get(LIST) if isinstance(stored, dict) else stored)
    if len(caches) != len(content):
        raise CheckpointError(
            f"it holds {len(content)} cache entries, this model has {len(caches)}"
        )
    caches[:] = unpacked(stored, arrays, caches)


def _key(key: object, path: str) -> object:
    if type(key) not in _PLAIN:
        raise CheckpointError(f"a checkpoint cannot hold the {type(key).__name__} key at {path}")
    return key


def _restored(
    fresh: object,
    name: str,
    values: Mapping[str, Any],
    arrays: Mapping[str, mx.array],
) -> Any:  # noqa: ANN401
    same = type(fresh).__name__ == name
    entry, known = (fresh, vars(fresh)) if same else (_made(name), {})
    if entry is None or (same and known.keys() != values.keys()):
        raise CheckpointError(
            f"its cache entry {name} ({', '.join(sorted(values))}) is not what this model has: "
            f"{type(fresh).__name__} ({', '.join(sorted(getattr(fresh, '__dict__', ())))})"
        )
    vars(entry).update({k: unpacked(v, arrays, known.get(k)) for k, v in values.items()})
    return entry


def _made(name: str) -> object:
    """An entry of one of mlx-lm's own kinds without any content; None for other names."""
    kind: Any = getattr(mlx_lm_cache, name, None) if isinstance(name, str) else None
    base = mlx_lm_cache._BaseCache  # noqa: SLF001 - what makes a class a kind of cache entry
    return kind.__new__(kind) if isinstance(kind, type) and issubclass(kind, base) else None
