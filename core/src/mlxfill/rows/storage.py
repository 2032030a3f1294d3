"""Cache entries of several rows, each row written from its own position on.

mlx-lm's batch caches pad rows on the left, so that all end at the same slot: rows that accept
different numbers of drafts have to be moved after each round.  Here every row begins at slot 0
and ends where it ends; a refused tail is overwritten by what comes next, and nothing moves.  In
a forward these entries behave as mlx-lm's do: ``offset`` ``[B]``, ``make_mask``,
``update_and_fetch``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import mlx.core as mx
from mlx_lm.models.cache import KVCache, QuantizedKVCache, RotatingKVCache

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Entry = TypeVar("Entry", bound="RowKV")

STEP = 256
"""Slots by which a buffer grows, and by which a sliding one may outgrow its window."""


class Lengths:
    """How many tokens each row holds at a boundary; one object for all entries of a batch."""

    def __init__(self) -> None:
        """No rows."""
        self.held: list[int] = []
        self._offsets: dict[int, mx.array] = {}
        self._masks: dict[object, mx.array] = {}
        self._places: dict[object, mx.array] = {}

    def set(self, held: Sequence[int]) -> None:
        """The rows hold this many tokens now."""
        self.held = list(held)
        self._offsets.clear()
        self._masks.clear()
        self._places.clear()

    def offset(self, ahead: int) -> mx.array:
        """``[B]`` positions after ``ahead`` ids of the present window."""
        if ahead not in self._offsets:
            self._offsets[ahead] = mx.array([n + ahead for n in self.held], mx.int32)
        return self._offsets[ahead]

    def places(self, slots: Sequence[int], size: int) -> mx.array:
        """``[B, 1, size, 1]`` slots into which a window of ``size`` ids is written."""
        key = (tuple(slots), size)
        if key not in self._places:
            at = mx.array(list(slots), mx.int32)[:, None] + mx.arange(size, dtype=mx.int32)
            self._places[key] = at[:, None, :, None]
        return self._places[key]

    def mask(self, slots: Sequence[int], size: int, window: int | None) -> mx.array:
        """``[B, 1, size, T]``: id i of row b sees its slots up to ``slots[b] + i``, as far back
        as ``window``.
        """
        key = (tuple(slots), size, window)
        if key not in self._masks:
            at = mx.array(list(slots), mx.int32)[:, None] + mx.arange(size, dtype=mx.int32)
            keys = mx.arange(max(slots) + size, dtype=mx.int32)
            mask = keys <= at[..., None]
            if window is not None:
                mask &= keys > at[..., None] - window
            self._masks[key] = mask[:, None]
        return self._masks[key]


class RowKV:
    """Keys and values ``[B, heads, T, D]``; a row's token n lies in slot n.

    ``arrays`` are all arrays with a time axis: keys and values, or their quantized parts.
    """

    window: int | None = None
    plain = True
    """Whether the arrays are keys and values as they are, and each row sees all of its own."""

    def __init__(self, lengths: Lengths, arrays: Sequence[mx.array] = ()) -> None:
        """``arrays`` of the rows of ``lengths``; none yet for a batch without rows."""
        self._lengths = lengths
        self.arrays = list(arrays)
        self._ahead = 0
        self._reach = 0

    # --- what a model asks ----------------------------------------------------------------

    @property
    def offset(self) -> mx.array:
        """``[B]`` positions of the next ids."""
        return self._lengths.offset(self._ahead)

    def make_mask(
        self,
        N: int,  # noqa: N803 - mlx-lm's name
        window_size: int | None = None,
        return_array: bool = False,
    ) -> mx.array | str | None:
        """The attention mask of a window of ``N`` ids, before it is written."""
        slots, window = self.slots(), self._narrower(window_size)
        alike = len(set(slots)) == 1 and not return_array
        if alike and (window is None or slots[0] + N <= window):
            return "causal" if N > 1 else None
        return self._lengths.mask(slots, N, window)

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[Any, Any]:
        """Write ``[B, heads, S, D]`` after each row; all slots up to the longest row's end."""
        self._write([keys, values])
        return self.keys_and_values()

    def keys_and_values(self) -> tuple[Any, Any]:
        """What is there with the present window, for a layer that shares another's entry."""
        keys, values = self._filled(self._ahead)
        return keys, values

    def _write(self, new: Sequence[mx.array]) -> None:
        size, slots = new[0].shape[2], self.slots()
        if not self.arrays:
            self.arrays = [fresh[:, :, :0] for fresh in new]
        self._grow(self._longest() + size)
        if len(set(slots)) == 1:
            for array, fresh in zip(self.arrays, new, strict=True):
                array[:, :, slots[0] : slots[0] + size] = fresh
        else:
            at = self._lengths.places(slots, size)
            self.arrays = [
                mx.put_along_axis(array, mx.broadcast_to(at, fresh.shape), fresh, axis=2)
                for array, fresh in zip(self.arrays, new, strict=True)
            ]
        self._ahead = size

    def _filled(self, size: int) -> list[mx.array]:
        end = self._longest() + size
        return [array[:, :, :end] for array in self.arrays]

    def _longest(self) -> int:
        return max(*self.slots(), self._reach)

    def _grow(self, need: int) -> None:
        missing = need - self.arrays[0].shape[2]
        if missing > 0:
            self.arrays = [_longer(array, -(-missing // STEP) * STEP) for array in self.arrays]

    def _narrower(self, asked: int | None) -> int | None:
        limits = [w for w in (asked, self.window) if w is not None]
        return min(limits, default=None)

    # --- a compiled forward -----------------------------------------------------------------

    def reserve(self, size: Callable[[int], int], fresh: int) -> None:
        """Make room for ``fresh`` more ids: buffers of ``size(n)`` slots for n tokens."""
        need = self._longest() + fresh
        if need > self.arrays[0].shape[2] or size(need) < self.arrays[0].shape[2]:
            slots = size(need)
            self.arrays = [
                _longer(array[:, :, :slots], slots - array.shape[2]) for array in self.arrays
            ]

    def written(self, arrays: Sequence[mx.array], fresh: int) -> None:
        """``fresh`` ids were written after each row, into copies of the arrays."""
        self.arrays, self._ahead = list(arrays), fresh

    # --- rows -----------------------------------------------------------------------------

    def slots(self) -> list[int]:
        """The next free slot of each row at the last boundary."""
        return self._lengths.held

    def settle(self) -> None:
        """The lengths have moved to a new boundary."""
        self._ahead = 0

    def join(self, singles: Sequence[Any]) -> None:
        """Rows from mlx-lm entries of the kind; called before the lengths know of them.

        All of them hold tokens, and so do the rows that are here, or none does.
        """
        self._append([self._parts(single) for single in singles if single.offset])

    def _append(self, rows: Sequence[Sequence[mx.array]]) -> None:
        """More rows: of each the arrays ``[1, heads, n, D]``."""
        every = [self.arrays, *rows] if self.arrays else rows
        size = max((parts[0].shape[2] for parts in every), default=0)
        self.arrays = [
            mx.concatenate([_longer(array, size - array.shape[2]) for array in same])
            for same in zip(*every, strict=True)
        ]

    def keep(self, rows: Sequence[int]) -> None:
        """Only these rows remain, in this order."""
        self.arrays = [array[mx.array(list(rows))] for array in self.arrays]

    def scratch(self, rows: Sequence[int], lengths: Lengths) -> RowKV:
        """A copy of some rows to write into."""
        return self._narrowed(RowKV(lengths, self.arrays), rows)

    def _narrowed(self, copied: Entry, rows: Sequence[int]) -> Entry:
        """Some rows, as many slots as all of them: masks that were made for all still fit."""
        copied.keep(rows)
        copied._reach = max(self.slots())  # noqa: SLF001 - of the same class
        return copied

    def extract(self, row: int) -> Any:  # noqa: ANN401
        """The row as an mlx-lm entry of its own."""
        single, held = KVCache(), self._lengths.held[row]
        if self.arrays:
            single.keys, single.values = self._row(row, 0, held)
            single.offset = held
        return single

    def _row(self, row: int, first: int, last: int) -> list[mx.array]:
        return [mx.contiguous(array[row : row + 1, :, first:last]) for array in self.arrays]

    def _parts(self, single: Any) -> list[mx.array]:  # noqa: ANN401
        return [single.keys[:, :, : single.offset], single.values[:, :, : single.offset]]

    # --- what mlx-lm's entries have ---------------------------------------------------------

    @property
    def state(self) -> list[mx.array]:
        """What to evaluate."""
        return self.arrays

    @property
    def nbytes(self) -> int:
        """Bytes of all rows."""
        return sum(array.nbytes for array in self.arrays)

    def empty(self) -> bool:
        """Whether nothing was ever written."""
        return not self.arrays

    def size(self) -> int:
        """Tokens of the longest row."""
        return max(self._lengths.held, default=0)

    def is_trimmable(self) -> bool:
        """Rows are taken back by their lengths, never by ``trim``."""
        return False


class RowQuantizedKV(RowKV):
    """The same with mlx-lm's quantized keys and values: packed, scales and biases of each."""

    plain = False

    def __init__(
        self, lengths: Lengths, arrays: Sequence[mx.array] = (), *, bits: int, group_size: int
    ) -> None:
        super().__init__(lengths, arrays)
        self.bits, self.group_size = bits, group_size

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[Any, Any]:
        """Quantize and write; the parts of keys and of values."""
        new = [
            part
            for array in (keys, values)
            for part in mx.quantize(array, group_size=self.group_size, bits=self.bits)
        ]
        self._write(new)
        return self.keys_and_values()

    def keys_and_values(self) -> tuple[Any, Any]:
        """The parts of both, as ``update_and_fetch`` answers them."""
        filled = self._filled(self._ahead)
        return tuple(filled[:3]), tuple(filled[3:])

    def scratch(self, rows: Sequence[int], lengths: Lengths) -> RowQuantizedKV:
        """A copy of some rows to write into."""
        copied = RowQuantizedKV(lengths, self.arrays, bits=self.bits, group_size=self.group_size)
        copied.keep(rows)
        return copied

    def extract(self, row: int) -> Any:  # noqa: ANN401
        """The row as mlx-lm's quantized entry."""
        single: Any = QuantizedKVCache(self.group_size, self.bits)
        held = self._lengths.held[row]
        parts = self._row(row, 0, held)
        single.keys, single.values = tuple(parts[:3]), tuple(parts[3:])
        single.offset = held
        return single

    def _parts(self, single: Any) -> list[mx.array]:  # noqa: ANN401
        return [part[:, :, : single.offset] for part in (*single.keys, *single.values)]


class RowSlidingKV(RowKV):
    """A sliding window: the last ``window`` tokens of each row, oldest first.

    Older ones stay until they are many, out of sight, so that no row has to move in a round and
    a refused tail is taken back without a copy.  ``starts[b]``: the token in row b's slot 0.
    """

    plain = False

    def __init__(
        self,
        lengths: Lengths,
        arrays: Sequence[mx.array] = (),
        *,
        window: int,
        starts: Sequence[int] = (),
    ) -> None:
        super().__init__(lengths, arrays)
        self.window: int = window
        self.starts = list(starts)

    def slots(self) -> list[int]:
        """The next free slot of each row at the last boundary."""
        return [n - first for n, first in zip(self._lengths.held, self.starts, strict=True)]

    def settle(self) -> None:
        """Forget what fell out of every window, when it is enough to be worth a copy."""
        super().settle()
        slots = self.slots()
        if max(slots, default=0) - self.window < STEP:
            return
        olds = [max(n - self.window, 0) for n in slots]
        rows = [self._row(b, olds[b], slots[b]) for b in range(len(slots))]
        self.arrays = []
        self._append(rows)
        self.starts = [first + old for first, old in zip(self.starts, olds, strict=True)]

    def join(self, singles: Sequence[Any]) -> None:
        """Rows from rings."""
        rows = [self._parts(single) for single in singles if single.offset]
        self._append(rows)
        held = [parts[0].shape[2] for parts in rows] or [0] * len(singles)
        self.starts += [single.offset - n for single, n in zip(singles, held, strict=True)]

    def keep(self, rows: Sequence[int]) -> None:
        """Only these rows remain, in this order."""
        super().keep(rows)
        self.starts = [self.starts[row] for row in rows]

    def scratch(self, rows: Sequence[int], lengths: Lengths) -> RowSlidingKV:
        """A copy of some rows to write into."""
        copied = RowSlidingKV(lengths, self.arrays, window=self.window, starts=self.starts)
        return self._narrowed(copied, rows)

    def extract(self, row: int) -> Any:  # noqa: ANN401
        """The row as mlx-lm's ring, in order of time."""
        single, held, first = (
            RotatingKVCache(self.window),
            self._lengths.held[row],
            self.starts[row],
        )
        begin = max(held - self.window, first)
        single.keys, single.values = self._row(row, begin - first, held - first)
        single.offset, single._idx = held, held - begin  # noqa: SLF001 - it has no setter
        return single

    def _parts(self, single: Any) -> list[mx.array]:  # noqa: ANN401
        ordered = [single._temporal_order(array) for array in (single.keys, single.values)]  # noqa: SLF001
        return [array[:, :, -single.max_size :] for array in ordered]


def _longer(array: mx.array, slots: int) -> mx.array:
    """``[B, heads, T, D]`` with ``slots`` more zeros at the end of the time axis."""
    if slots <= 0:
        return array
    shape = (*array.shape[:2], slots, *array.shape[3:])
    return mx.concatenate([array, mx.zeros(shape, array.dtype)], axis=2)
