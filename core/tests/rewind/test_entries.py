"""Each kind of cache entry goes back to what it would hold without the refused tail.

Entries are written to directly: keys and values that say which id they belong to, and a
recurrent state that sums up all ids.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mlx.core as mx
import pytest
from mlx_lm.models.cache import (
    ArraysCache,
    CacheList,
    ChunkedKVCache,
    ConcatenateKVCache,
    KVCache,
    QuantizedKVCache,
    RotatingKVCache,
)

from mlxfill import ModelError
from mlxfill.rewind.entries import GenericRewinder, builtin_rewinder, flat, is_plain
from mlxfill_testing import differences

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

WIDTH = 32
IDS = range(1, 40)

KINDS: dict[str, Callable[[], Any]] = {
    "kv": KVCache,
    "quantized": lambda: QuantizedKVCache(group_size=32, bits=8),
    "concatenate": ConcatenateKVCache,
    "chunked": lambda: ChunkedKVCache(8),
    "ring": lambda: RotatingKVCache(8),
    "ring that keeps four": lambda: RotatingKVCache(8, keep=4),
    "state": lambda: ArraysCache(2),
    "keys and state": lambda: CacheList(ArraysCache(2), KVCache()),
    "keys and ring": lambda: CacheList(KVCache(), RotatingKVCache(8)),
    "rings": lambda: CacheList(RotatingKVCache(8), RotatingKVCache(6)),
    "lists in a list": lambda: CacheList(CacheList(KVCache(), ArraysCache(1)), RotatingKVCache(8)),
}


def write(entry: Any, ids: Sequence[int]) -> None:
    """Forward ``ids`` into an entry, as one window."""
    for part in flat([entry]):
        if isinstance(part, ArraysCache):
            old = 0 if part[0] is None else part[0]
            part[0] = mx.array([[float(sum(ids))]]) + old
            part[len(part.cache) - 1] = part[0]
            part.advance(len(ids))
        else:
            keys = mx.repeat(mx.array(list(ids), mx.float32)[None, None, :, None], WIDTH, axis=3)
            part.update_and_fetch(keys, keys + 0.5)
    mx.eval(entry.state)


class Layer:
    """A decoder layer: fills an entry and can do so again."""

    def __init__(self, entry: Any) -> None:
        self.entry = entry
        self.ids: Sequence[int] = ()
        self.replayed: list[int] = []

    def __call__(self, ids: Sequence[int]) -> None:
        self.ids = ids
        write(self.entry, ids)

    def window(self) -> int:
        return len(self.ids)

    def replay(self, keep: int) -> None:
        self.replayed.append(keep)
        write(self.entry, self.ids[:keep])


def made(entry: Any) -> tuple[Layer, Any]:
    layer = Layer(entry)
    return layer, builtin_rewinder(entry, layer)


def written(make: Callable[[], Any], *pieces: Sequence[int]) -> Any:
    entry = make()
    for piece in pieces:
        if piece:
            write(entry, piece)
    return entry


@pytest.mark.parametrize("context", [0, 5, 8, 13])
@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)
def test_a_rewind_leaves_what_was_kept(make: Callable[[], Any], context: int) -> None:
    """The bare entry, then after two steps and a window more."""
    for size in (1, 2, 4):
        for keep in range(size):
            ours = written(make, IDS[:context])
            layer, rewinder = made(ours)
            rewinder.begin()
            layer(IDS[context : context + size])
            rewinder.rewind(keep)
            theirs = written(make, IDS[:context], IDS[context : context + keep])
            for after in ([], [99], [97, 96, 95]):
                if after:
                    write(ours, after)
                    write(theirs, after)
                assert differences([ours], [theirs]) == [], (size, keep, after)


@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)
def test_one_rewinder_serves_window_after_window(make: Callable[[], Any]) -> None:
    ours, theirs = make(), make()
    layer, rewinder = made(ours)
    at = 0
    for size, keep in ((3, 1), (4, 0), (1, 0), (5, 4), (2, 2), (6, 3), (4, 4), (3, 0), (5, 2)):
        rewinder.begin()
        layer(IDS[at : at + size])
        if keep == size:
            rewinder.commit()
        else:
            rewinder.rewind(keep)
        if keep:
            write(theirs, IDS[at : at + keep])
        at += keep
        assert differences([ours], [theirs]) == [], at


# --- states -------------------------------------------------------------------------


@pytest.mark.parametrize("keep", [0, 2])
def test_a_state_gets_back_what_counts_down_beside_it(keep: int) -> None:
    entry: Any = ArraysCache(2, left_padding=[9])
    entry.prepare(lengths=[20])
    write(entry, [1, 2, 3])
    layer, rewinder = made(entry)
    rewinder.begin()
    layer([4, 5, 6, 7])
    rewinder.rewind(keep)
    assert entry.lengths.tolist() == [17 - keep]
    assert entry.left_padding.tolist() == [6 - keep]
    assert layer.replayed == ([keep] if keep else [])


@pytest.mark.parametrize("keep", [0, 3])
def test_a_layer_is_replayed_once_for_all_parts_that_it_fills(keep: int) -> None:
    layer, rewinder = made(CacheList(ArraysCache(1), KVCache(), ArraysCache(1)))
    rewinder.begin()
    layer([1, 2, 3, 4])
    rewinder.rewind(keep)
    assert layer.replayed == ([keep] if keep else [])


@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)
def test_only_what_holds_no_positions_needs_a_replay(make: Callable[[], Any]) -> None:
    entry = make()
    layer, rewinder = made(entry)
    stateful = any(isinstance(part, ArraysCache) for part in flat([entry]))
    assert rewinder.needs_replay is stateful
    rewinder.begin()
    layer([1, 2, 3])
    rewinder.rewind(2)
    assert layer.replayed == ([2] if stateful else [])


def memory() -> int:
    mx.synchronize()
    return mx.get_active_memory()


@pytest.mark.parametrize("end", ["commit", "rewind"])
@pytest.mark.parametrize("name", ["state", "ring", "keys and state"])
def test_a_window_that_ended_holds_no_memory(name: str, end: str) -> None:
    """What was kept to go back to goes with the window."""
    entry = KINDS[name]()
    layer, rewinder = made(entry)
    layer(IDS[:12])
    for part in flat([entry]):
        if isinstance(part, ArraysCache):
            part[0] = mx.zeros(1 << 20)
            mx.eval(part[0])
    rewinder.begin()
    layer([1, 2, 3])
    getattr(rewinder, end)(*([0] if end == "rewind" else []))
    held = memory()
    del rewinder
    assert memory() == held


# --- entries of a model's own making -----------------------------------------------------


class Ledger:
    """Sums up all ids, in place and by new arrays, and counts them."""

    def __init__(self) -> None:
        self.sums: dict[str, list[mx.array]] = {"in place": [mx.zeros(1)], "anew": []}
        self.count = 0
        self.fixed = (mx.zeros(1), "name")

    def write(self, ids: Sequence[int]) -> None:
        for token in ids:
            self.fixed[0][0] = token
            self.sums["in place"][0][0] = self.sums["in place"][0][0] * 2 + token
            self.sums["anew"] = [*self.sums["anew"], mx.array([token])]
            self.count += 1

    def held(self) -> Any:
        arrays = [*self.sums["in place"], *self.sums["anew"], self.fixed[0]]
        return [each.tolist() for each in arrays]


def ledger(*pieces: Sequence[int]) -> Ledger:
    made = Ledger()
    for piece in pieces:
        made.write(piece)
    return made


class LedgerLayer(Layer):
    def __call__(self, ids: Sequence[int]) -> None:
        self.ids = ids
        self.entry.write(ids)

    def replay(self, keep: int) -> None:
        self.replayed.append(keep)
        self.entry.write(self.ids[:keep])


def test_what_a_model_made_itself_is_put_back_and_its_layer_called_again() -> None:
    entry = ledger([1, 2])
    layer = LedgerLayer(entry)
    rewinder = GenericRewinder(entry, layer)
    assert rewinder.needs_replay
    kept: list[int] = [1, 2]
    for ids, keep in (([3, 4, 5], 2), ([6, 7], 0), ([8, 9, 10], 3), ([11, 12], 1)):
        rewinder.begin()
        layer(ids)
        if keep == len(ids):
            rewinder.commit()
        else:
            rewinder.rewind(keep)
        kept += ids[:keep]
        assert entry.held() == ledger(kept).held()
        assert entry.count == len(kept)
    assert layer.replayed == [2, 1]


@pytest.mark.parametrize("end", ["commit", "rewind"])
def test_what_a_model_made_itself_is_not_held_longer_than_a_window(end: str) -> None:
    entry = Ledger()
    entry.sums["anew"] = [mx.zeros(1 << 20)]
    mx.eval(entry.sums["anew"])
    layer = LedgerLayer(entry)
    rewinder = GenericRewinder(entry, layer)
    rewinder.begin()
    layer([1])
    entry.sums["anew"] = []
    getattr(rewinder, end)(*([0] if end == "rewind" else []))
    entry.sums["anew"] = []
    held = memory()
    del rewinder
    assert memory() == held


def plain(**values: Any) -> Any:
    made = Ledger()
    vars(made).clear()
    vars(made).update(values)
    return made


PLAIN: dict[str, Any] = {
    "nothing": None,
    "an array": mx.zeros(2),
    "a kind of number": mx.float32,
    "a count": 3,
    "a switch": True,
    "a share": 0.5,
    "a name": "ring",
    "a list": [mx.zeros(2), None],
    "a tuple": (1, (2, mx.zeros(1))),
    "a mapping": {"a": [mx.zeros(2)], "b": {}},
}
ODD: dict[str, Any] = {
    "an object": object(),
    "another entry": Ledger(),
    "a function": len,
    "an object in a list": [1, object()],
    "an object in a mapping": {"a": 1, "b": object()},
    "an object far down": ([{"a": (object(),)}],),
    "a set": {1, 2},
    "bytes": b"ring",
}


@pytest.mark.parametrize("value", PLAIN.values(), ids=PLAIN)
def test_what_can_be_copied_is_plain(value: Any) -> None:
    assert is_plain(plain(value=value))
    assert is_plain(plain(before=1, value=value, after=None))


@pytest.mark.parametrize("value", ODD.values(), ids=ODD)
def test_what_nobody_can_copy_is_not_plain(value: Any) -> None:
    assert not is_plain(plain(value=value))
    assert not is_plain(plain(before=1, value=value, after=None))


def test_what_has_no_attributes_is_not_plain() -> None:
    assert is_plain(plain())
    for value in (3, [mx.zeros(1)], {"a": 1}, object()):
        assert not is_plain(value)


# --- what cannot be taken back ---------------------------------------------------------


class Own:
    """An entry of a kind that mlx-lm does not have, without ``trim``."""


class Fixed(KVCache):
    """Keys and values that are never given back."""

    def is_trimmable(self) -> bool:
        return False


class Untold:
    """Has ``trim`` and does not say when it works."""

    def trim(self, n: int) -> int:
        return n


class Unable:
    """Says that it can be trimmed and cannot."""

    def is_trimmable(self) -> bool:
        return True


@pytest.mark.parametrize("make", [Own, Fixed, Untold, Unable])
def test_there_is_no_rewinder_for_what_nobody_knows(make: Any) -> None:
    entry = make()
    assert builtin_rewinder(entry, Layer(entry)) is None
    whole = CacheList(KVCache(), entry)
    assert builtin_rewinder(whole, Layer(whole)) is None


def test_a_foreign_entry_that_can_be_trimmed_is_trimmed() -> None:
    class Counter:
        offset = 700

        def is_trimmable(self) -> bool:
            return True

        def trim(self, n: int) -> int:
            before = self.offset
            self.offset -= n
            return before - self.offset

    entry = Counter()
    layer = Layer(entry)
    rewinder: Any = builtin_rewinder(entry, layer)
    rewinder.begin()
    layer.ids = range(400)
    rewinder.rewind(1)
    assert entry.offset == 301


@pytest.mark.parametrize("given", [-1, 0, 2, 4])
def test_an_entry_that_gives_back_another_count_is_an_error(given: int) -> None:
    """A rewind that went wrong must not pass for one that went well."""

    class Odd(KVCache):
        def trim(self, n: int) -> int:
            self.offset -= n
            return given

    make: Any = Odd
    layer, rewinder = made(make())
    layer(IDS[:5])
    with pytest.raises(ModelError, match=r"^Odd did not give back 3 tokens$"):
        rewinder.rewind(2)


def test_an_entry_that_was_never_written_gives_nothing_back() -> None:
    """A layer without attention may have one all the same."""
    entry = KVCache()
    layer, rewinder = made(entry)
    rewinder.begin()
    layer.ids = [1, 2, 3]
    rewinder.rewind(1)
    assert entry.offset == 0
    layer([4, 5, 6])
    rewinder.rewind(1)
    assert differences([entry], [written(KVCache, [4])]) == []


def test_an_entry_is_asked_each_time_whether_it_can_be_trimmed() -> None:
    """A ring can until it has wrapped."""

    class Closing(KVCache):
        open = True

        def is_trimmable(self) -> bool:
            return self.open

    make: Any = Closing
    entry = make()
    layer, rewinder = made(entry)
    layer(IDS[:5])
    entry.open = False
    with pytest.raises(ModelError, match="Closing did not give back 4 tokens"):
        rewinder.rewind(1)
    assert entry.offset == 5


def test_a_list_is_flat_whatever_it_holds() -> None:
    a, b, c, d = KVCache(), ArraysCache(1), RotatingKVCache(4), KVCache()
    assert list(flat([a, CacheList(b, CacheList(c)), d])) == [a, b, c, d]
