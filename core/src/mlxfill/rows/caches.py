"""The prompt caches of several rows as one, with a ragged rewind."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import mlx.core as mx
from attrs import frozen
from mlx_lm.models.cache import (
    ArraysCache,
    CacheList,
    KVCache,
    QuantizedKVCache,
    RotatingKVCache,
)

from mlxfill.rewind.entries import flat
from mlxfill.rewind.replay import cut, feeding_call
from mlxfill.rows.storage import Lengths, RowKV, RowQuantizedKV, RowSlidingKV

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from mlxfill.model.hooks import LayerCall, LayerTrace


def layout(cache: Sequence[Any]) -> tuple[object, ...] | None:
    """What caches must have in common to become rows of one batch; None: these cannot.

    ``cache`` is an mlx-lm prompt cache that holds at least one token.
    """
    kinds = tuple(_kind(entry) for entry in cache)
    return None if None in kinds else kinds


def _kind(entry: object) -> object | None:
    """Exact types only: a subclass may keep more than we would carry over."""
    if type(entry) is CacheList:
        return layout(entry.caches)
    if type(entry) is KVCache:
        return "kv"
    if type(entry) is QuantizedKVCache:
        return ("quantized", entry.bits, entry.group_size)
    if type(entry) is RotatingKVCache and not entry.keep:
        return ("sliding", entry.max_size)
    if type(entry) is ArraysCache and entry.left_padding is None and entry.lengths is None:
        return "states"
    return None


class RowCaches:
    """Caches of B rows.  ``entries`` go to the model as its prompt cache.

    A window: ``begin()``, forward ``[B, S]`` ids with S of ``window_size``, ``settle(counts, S)``:
    row b keeps the first ``counts[b]`` of its S ids.  Where it is known before how many are a row's
    own, as in a prompt: ``expect(counts)``, forward, ``advance(counts)``.
    """

    def __init__(self) -> None:
        """No rows."""
        self.lengths = Lengths()
        self.entries: list[Any] = []
        self._saved: list[list[Any]] = []

    @property
    def needs_tape(self) -> bool:
        """Whether a window must be taped, so that recurrent states can be taken back."""
        return any(True for _ in self._states())

    def _states(self) -> Iterator[ArraysCache]:
        return (entry for entry in flat(self.entries) if isinstance(entry, ArraysCache))

    # --- rows join and leave ------------------------------------------------------------------

    def join(self, caches: Sequence[Sequence[Any]], held: Sequence[int]) -> None:
        """Add rows from mlx-lm prompt caches of ``held`` tokens each, which are not changed.

        All hold tokens, and so do the rows that are here, or none does.
        """
        if not self.entries:
            self.entries = [_rowed(entry, self.lengths) for entry in caches[0]]
        for entry, *singles in zip(flat(self.entries), *map(flat, caches), strict=True):
            if isinstance(entry, ArraysCache):
                _join_states(entry, singles)
            else:
                entry.join(singles)
        self.lengths.set([*self.lengths.held, *held])

    def keep(self, rows: Sequence[int]) -> None:
        """Only these rows remain, in this order."""
        if not rows:
            self.entries = []
        for entry in flat(self.entries):
            if isinstance(entry, ArraysCache):
                entry.filter(mx.array(list(rows)))
            else:
                entry.keep(rows)
        self.lengths.set([self.lengths.held[row] for row in rows])

    def extract(self, row: int) -> list[Any]:
        """A row as an mlx-lm prompt cache of its own."""
        return [_extracted(entry, row) for entry in self.entries]

    # --- windows ------------------------------------------------------------------------------

    def window_size(self, longest: int) -> int:
        """How long a window must be for rows that want up to ``longest`` ids.

        States are taken back by cutting the arguments of layers, whose axes are known by their
        lengths: as many ids as rows would look alike.
        """
        return longest + 1 if self.needs_tape and longest == len(self.lengths.held) else longest

    def begin(self) -> None:
        """Before a window of which something may be refused."""
        self._saved = [list(entry.cache) for entry in self._states()]

    def settle(self, counts: Sequence[int], size: int = 1, tape: LayerTrace | None = None) -> None:
        """Row b keeps its first ``counts[b]`` ids of a window of ``size``."""
        if any(count != size for count in counts):
            for entry, before in zip(list(self._states()), self._saved, strict=True):
                entry.cache = self._taken_back(entry, before, counts, _Taped(size, tape))
        self._saved = []
        self._move(counts)

    def expect(self, counts: Sequence[int]) -> None:
        """Before a window of which the first ``counts[b]`` ids are row b's own, the rest padding.

        mlx-lm's models are told by ``lengths`` where recurrent states are to stop.
        """
        ragged = len(set(counts)) > 1
        for entry in self._states():  # each counts its own down
            entry.lengths = mx.array(list(counts)) if ragged else None  # type: ignore[assignment]

    def advance(self, counts: Sequence[int]) -> None:
        """Row b has read ``counts[b]`` ids of a window as expected."""
        for entry in self._states():
            entry.lengths = None
        self._move(counts)

    def _move(self, counts: Sequence[int]) -> None:
        self.lengths.set([n + count for n, count in zip(self.lengths.held, counts, strict=True)])
        for entry in flat(self.entries):
            if not isinstance(entry, ArraysCache):
                entry.settle()

    def _taken_back(
        self, entry: ArraysCache, before: list[Any], counts: Sequence[int], window: _Taped
    ) -> list[Any]:
        """States after the kept ids: rows that keep equally many are replayed together."""
        call = feeding_call(window.tape, entry)
        groups: dict[int, list[int]] = {}
        for row, count in enumerate(counts):
            groups.setdefault(count, []).append(row)
        parts: list[list[Any]] = []
        for count, rows in groups.items():
            if count == window.size:
                parts.append(_picked(entry.cache, rows))
                continue
            fresh = ArraysCache(len(before))
            fresh.cache = _picked(before, rows)
            if count:
                picker = _RowPicker(self.lengths, entry, fresh, rows)
                args, kwargs = picker.arguments(call, count, window.size)
                call.layer(*args, **kwargs)
            parts.append(fresh.cache)
        order = [row for rows in groups.values() for row in rows]
        joined = [mx.concatenate(list(arrays)) for arrays in zip(*parts, strict=True)]
        if order == sorted(order):
            return joined
        back = mx.array(sorted(range(len(order)), key=order.__getitem__))
        return [array[back] for array in joined]


@frozen
class _Taped:
    size: int
    tape: LayerTrace | None


class _RowPicker:
    """Arguments of a layer call for some rows only, with an entry of their own."""

    def __init__(
        self, lengths: Lengths, entry: ArraysCache, fresh: ArraysCache, rows: list[int]
    ) -> None:
        self._entry, self._fresh, self._rows = entry, fresh, rows
        self._count = len(lengths.held)
        self._all = len(rows) == self._count
        self._lengths = Lengths()
        self._lengths.set([lengths.held[row] for row in rows])

    def arguments(
        self, call: LayerCall, count: int, size: int
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What the layer is called with again, cut to ``count`` of ``size`` ids."""
        cuts = partial(cut, keep=count, size=size)
        args = tuple(self.pick(a, cuts) for a in call.args)
        kwargs = {
            name: self.pick(value, partial(cuts, mask="mask" in name))
            for name, value in call.kwargs.items()
        }
        return args, kwargs

    def pick(  # noqa: PLR0911 - one return a kind of argument
        self,
        value: Any,  # noqa: ANN401
        cuts: Callable[[mx.array], mx.array],
    ) -> Any:  # noqa: ANN401
        """An argument for these rows only, ``cuts`` applied to its arrays."""
        if value is self._entry:
            return self._fresh
        if isinstance(value, RowKV):  # beside the states in a composite: written and forgotten
            return value.scratch(self._rows, self._lengths)
        if isinstance(value, ArraysCache):
            other = ArraysCache(len(value.cache))
            other.cache = _picked(value.cache, self._rows)
            return other
        if isinstance(value, CacheList):
            return CacheList(*(self.pick(part, cuts) for part in value.caches))
        if isinstance(value, tuple | list):
            return type(value)(self.pick(each, cuts) for each in value)
        if isinstance(value, dict):
            return {key: self.pick(each, cuts) for key, each in value.items()}
        if not isinstance(value, mx.array):
            return value
        rowed = value.ndim and value.shape[0] == self._count and not self._all
        return cuts(value)[mx.array(self._rows)] if rowed else cuts(value)


def _rowed(entry: object, lengths: Lengths) -> object:
    """An entry without rows for the kind of ``entry``."""
    if isinstance(entry, CacheList):
        return CacheList(*(_rowed(part, lengths) for part in entry.caches))
    if isinstance(entry, ArraysCache):
        return ArraysCache(len(entry.cache))
    if isinstance(entry, QuantizedKVCache):
        return RowQuantizedKV(lengths, bits=entry.bits, group_size=entry.group_size)
    if isinstance(entry, RotatingKVCache):
        return RowSlidingKV(lengths, window=entry.max_size)
    return RowKV(lengths)


def _extracted(entry: Any, row: int) -> Any:  # noqa: ANN401
    if isinstance(entry, CacheList):
        return CacheList(*(_extracted(part, row) for part in entry.caches))
    if isinstance(entry, ArraysCache):
        single = ArraysCache(len(entry.cache))
        single.cache = _picked(entry.cache, [row])
        return single
    return entry.extract(row)


def _join_states(entry: ArraysCache, singles: Sequence[ArraysCache]) -> None:
    every = [single.cache for single in singles]
    if any(array is not None for array in entry.cache):
        every.insert(0, entry.cache)
    joined: list[Any] = [
        None if same[0] is None else mx.concatenate(list(same)) for same in zip(*every, strict=True)
    ]
    entry.cache = joined


def _picked(arrays: Sequence[Any], rows: Sequence[int]) -> list[Any]:
    first, last = rows[0], rows[-1] + 1
    if list(rows) == list(range(first, last)):
        return [None if array is None else array[first:last] for array in arrays]
    index = mx.array(list(rows))
    return [None if array is None else array[index] for array in arrays]
