"""What a prompt cache holds, in a form that can be compared."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten
from mlx_lm.models.cache import ArraysCache, CacheList, ChunkedKVCache, RotatingKVCache


def contents(entry: Any) -> dict[str, Any]:  # noqa: ANN401 - an entry of mlx-lm's prompt cache
    """Arrays and numbers that count in a cache entry, by name.

    Unused space at the end of a buffer is left out, so is what the next forward drops from a
    chunk, and a ring is unrolled to the order of time: entries that hold the same tokens have
    equal contents.
    """
    if isinstance(entry, CacheList):
        parts = [contents(part) for part in entry.caches]
        return {f"{i}.{name}": v for i, part in enumerate(parts) for name, v in part.items()}
    if isinstance(entry, ArraysCache):
        named = {str(i): array for i, array in enumerate(entry.cache)}
        return {**named, "left_padding": entry.left_padding, "lengths": entry.lengths}
    if not hasattr(entry, "keys_and_values"):  # a class of a model's own
        return dict(tree_flatten(vars(entry)))
    numbers = {"offset": entry.offset}
    if entry.empty() or not entry.offset:
        return numbers
    if isinstance(entry, RotatingKVCache):
        order: Any = entry._temporal_order  # noqa: SLF001 - the one place that knows the order
        return {**numbers, "keys": order(entry.keys), "values": order(entry.values)}
    keys, values = entry.keys_and_values()
    if isinstance(entry, ChunkedKVCache):
        last = entry.chunk_size
        keys, values = keys[..., -last:, :], values[..., -last:, :]
    return {**numbers, **dict(tree_flatten({"keys": keys, "values": values}))}


def differences(ours: list[Any], theirs: list[Any]) -> list[str]:
    """Names of everything that differs between two prompt caches, bit for bit."""
    found = []
    for at, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        if type(a) is not type(b):
            found.append(f"entry {at}: {type(a).__name__} and {type(b).__name__}")
            continue
        mine, other = contents(a), contents(b)
        names = sorted(mine.keys() | other.keys())
        found += [
            f"entry {at} ({type(a).__name__}): {name}"
            for name in names
            if not _same(mine.get(name), other.get(name))
        ]
    return found


def _same(a: Any, b: Any) -> bool:  # noqa: ANN401
    if isinstance(a, mx.array) and isinstance(b, mx.array):
        return a.shape == b.shape and a.dtype == b.dtype and bool(mx.array_equal(a, b).item())
    return bool(a == b) if not isinstance(a, mx.array) and not isinstance(b, mx.array) else False
