"""A small forward over a KV cache as one compiled graph: what a drafter runs over and over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import mlx.core as mx
from mlx_lm.models.cache import KVCache

from mlxfill.model.reading import apart

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MOST_IDS = 8
"""Longer inputs are worth no graph of their own."""
PAGE, PAGES_AN_OCTAVE = 256, 4
"""Buffers grow by a page at first, later by a part of their size: each size is traced once."""
ROUNDING, LEAST_TOLERANCE = 16, 1e-3
"""How far a compiled output may be from the function's own, relative to the largest number:
units in the last place, and where those are finer than sums in another order."""


class CompiledForward:
    """A forward ``function(*arrays, cache)`` compiled, for inputs of a few tokens.

    ::

        forward = CompiledForward(lambda ids, cache: model(ids, cache=cache)[:, -1])
        logits = forward(ids, cache=cache)      # ids [1, L]; the cache holds them afterwards

    The entries of a ``BatchedCache`` will do as well, for ``[B, L]`` ids.  The first answer is
    compared with the function's own.  A function that differs or cannot be traced runs as it is,
    and so do long inputs and other kinds of cache.  Weights are part of the graph: make a new one
    when they change.
    """

    # The forward of a small model costs more in its hundreds of operations, each built and
    # dispatched by the host, than in arithmetic.  mx.compile fuses them, but a KV cache has another
    # shape after each token and would be compiled anew every time.  So the function is shown the
    # cache's whole buffers, an offset on the device, and a mask of what is filled.  The cache
    # itself stays mlx-lm's own and may be trimmed, saved and forwarded otherwise in between.

    def __init__(self, function: Callable[..., Any], *, most_ids: int = MOST_IDS) -> None:
        """``function``: of ``[1, L, ...]`` arrays to an array or a tuple of them, without effects
        but on ``cache``, a list of entries that it hands to mlx-lm's layers.

        :param most_ids: longer inputs run as they are.
        """
        self._function, self._most_ids = function, most_ids
        self._compiled: Any = mx.compile(self._traced)
        self._proved = self._refused = False

    def __call__(self, *arrays: mx.array, cache: list[Any]) -> Any:  # noqa: ANN401
        """Lazily what the function answers; ``cache`` then holds the first array's L tokens."""
        fresh = arrays[0].shape[1]
        rows = _rows(cache)
        if self._refused or fresh > self._most_ids or not (rows or _alike_filled(cache)):
            return self._function(*arrays, cache=cache)
        for entry in cache:
            entry.reserve(capacity, fresh) if rows else reserve(entry, fresh)
        if not self._proved:
            return self._prove(arrays, cache)
        answer, written = self._run(arrays, cache)
        for entry, (keys, values) in zip(cache, written, strict=True):
            if rows:
                entry.written((keys, values), fresh)
            else:
                entry.keys, entry.values = keys, values
                entry.offset += fresh
        return answer

    def _run(self, arrays: tuple[mx.array, ...], cache: list[Any]) -> Any:  # noqa: ANN401
        if _rows(cache):
            return self._compiled(arrays, cache[0].offset, [tuple(e.arrays) for e in cache])
        buffers = [(entry.keys, entry.values) for entry in cache]
        return self._compiled(arrays, mx.array([cache[0].offset], mx.int32), buffers)

    def _traced(
        self,
        arrays: tuple[mx.array, ...],
        offset: mx.array,
        buffers: Sequence[tuple[mx.array, mx.array]],
    ) -> tuple[Any, list[tuple[mx.array, mx.array]]]:
        kind = _Buffers if offset.shape[0] == 1 else _RowBuffers
        cache = [kind(keys, values, offset) for keys, values in buffers]
        answer = self._function(*arrays, cache=cache)
        return answer, [(entry.keys, entry.values) for entry in cache]

    def _prove(self, arrays: tuple[mx.array, ...], cache: list[Any]) -> Any:  # noqa: ANN401
        """The function's own answer, and whether the compiled one agrees."""
        try:
            compiled, _ = self._run(arrays, cache)
            mx.eval(compiled)
        except Exception:  # noqa: BLE001 - whatever a foreign model raises when it is traced
            self._refused = True
            return self._function(*arrays, cache=cache)
        own = self._function(*arrays, cache=cache)
        self._proved = all(_alike(a, b) for a, b in zip(_tuple(compiled), _tuple(own), strict=True))
        self._refused = not self._proved
        return own


class _Buffers:
    """A KV cache entry while it is traced: whole buffers, and an offset ``[1]`` on the device."""

    def __init__(self, keys: mx.array, values: mx.array, offset: mx.array) -> None:
        self.keys, self.values = keys, values
        self._start = offset
        self.offset = offset[0]

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Write ``[B, H, L, D]`` behind what is there; answers the whole buffers."""
        self.keys = mx.slice_update(self.keys, keys, self._start, axes=[2])
        self.values = mx.slice_update(self.values, values, self._start, axes=[2])
        self._start = self._start + keys.shape[2]
        self.offset = self._start[0]
        return self.keys, self.values

    def make_mask(
        self,
        size: int,
        *,
        return_array: bool = False,  # noqa: ARG002 - it is always one
        window_size: int | None = None,
    ) -> mx.array:
        """``[L, capacity]``: what each of the next ``size`` tokens may see."""
        at = mx.arange(self.keys.shape[2])
        last = (self._start + mx.arange(size))[:, None]
        mask = at <= last
        return mask if window_size is None else mask & (last < at + window_size)


class _RowBuffers:
    """The same for several rows, each with an offset of its own: ``[B]``."""

    def __init__(self, keys: mx.array, values: mx.array, offset: mx.array) -> None:
        self.keys, self.values, self.offset = keys, values, offset

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Write ``[B, H, L, D]`` behind what each row has; answers the whole buffers."""
        size = keys.shape[2]
        at = (self.offset[:, None] + mx.arange(size))[:, None, :, None]
        self.keys, self.values = (
            mx.put_along_axis(buffer, mx.broadcast_to(at, fresh.shape), fresh, axis=2)
            for buffer, fresh in ((self.keys, keys), (self.values, values))
        )
        self.offset = self.offset + size
        return self.keys, self.values

    def make_mask(
        self,
        size: int,
        window_size: int | None = None,
        *,
        return_array: bool = False,  # noqa: ARG002 - it is always one
    ) -> mx.array:
        """``[B, 1, L, capacity]``: what each of the next ``size`` tokens may see."""
        at = mx.arange(self.keys.shape[2])
        last = (self.offset[:, None] + mx.arange(size))[:, None, :, None]
        mask = at <= last
        return mask if window_size is None else mask & (last < at + window_size)


def reserve(entry: KVCache, fresh: int) -> None:
    """Make room for ``fresh`` more tokens; sizes are few, so that few graphs are traced."""
    keys, values = cast("mx.array", entry.keys), cast("mx.array", entry.values)
    missing = capacity(entry.offset + fresh) - keys.shape[2]
    if entry.offset + fresh > keys.shape[2]:
        padding = [(0, 0), (0, 0), (0, missing), (0, 0)]
        entry.keys, entry.values = mx.pad(keys, padding), mx.pad(values, padding)


def capacity(tokens: int) -> int:
    """Tokens that a buffer for ``tokens`` holds: up to a quarter or a page more."""
    octave = 1 << (tokens - 1).bit_length()
    page = max(octave // 2 // PAGES_AN_OCTAVE, PAGE)
    return -(-tokens // page) * page


def _alike_filled(cache: list[Any]) -> bool:
    """Whether the cache is of plain buffers that hold equally many tokens."""
    return all(
        type(entry) is KVCache and entry.keys is not None and entry.offset == cache[0].offset
        for entry in cache
    )


def _rows(cache: list[Any]) -> bool:
    """Whether the cache is of plain rows of several sequences."""
    return all(getattr(entry, "plain", False) and len(entry.arrays) > 0 for entry in cache)


def _alike(compiled: mx.array, own: mx.array) -> bool:
    """Whether two answers are equal up to the order of sums."""
    return apart(compiled, own) <= max(ROUNDING * mx.finfo(own.dtype).eps, LEAST_TOLERANCE)


def _tuple(answer: object) -> tuple[mx.array, ...]:
    return answer if isinstance(answer, tuple) else (answer,)
