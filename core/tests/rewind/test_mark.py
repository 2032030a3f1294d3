"""A mark remembers offsets where that is enough, and arrays where it is not."""

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
    RotatingKVCache,
)

from mlxfill import CacheMark
from mlxfill_testing import differences

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

IDS = list(range(1, 40))


def write(entry: Any, ids: Sequence[int]) -> None:
    """Forward ``ids`` one at a time, as a draft model does."""
    if isinstance(entry, CacheList):
        for part in entry.caches:
            write(part, ids)
        return
    for token in ids:
        if isinstance(entry, ChunkedKVCache):
            entry.maybe_trim_front()
        if isinstance(entry, ArraysCache):
            state = mx.array([float(token)]) if entry[0] is None else entry[0]
            state[0] = state[0] * 2 + token  # in place: a copy must not follow
            entry[0] = state
            entry.advance(1)
        else:
            keys = mx.full((1, 1, 1, 2), float(token))
            entry.update_and_fetch(keys, keys + 0.5)
        mx.eval(entry.state)


def written(make: Callable[[], Any], *pieces: Sequence[int]) -> Any:
    entry = make()
    for piece in pieces:
        write(entry, piece)
    return entry


def padded() -> ArraysCache:
    entry = ArraysCache(2, left_padding=[5])
    entry.prepare(lengths=[9])
    return entry


KINDS: dict[str, Callable[[], Any]] = {
    "kv": KVCache,
    "concatenate": ConcatenateKVCache,
    "chunked": lambda: ChunkedKVCache(8),
    "ring": lambda: RotatingKVCache(8),
    "ring that keeps four": lambda: RotatingKVCache(8, keep=4),
    "state": lambda: ArraysCache(2),
    "padded state": padded,
    "keys and state": lambda: CacheList(KVCache(), ArraysCache(1)),
    "keys and ring": lambda: CacheList(KVCache(), RotatingKVCache(8)),
}


@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)
def test_a_cache_goes_back_to_a_mark_as_if_nothing_had_followed(make: Callable[[], Any]) -> None:
    for context in (0, 2, 4, 5, 6, 8, 13):
        for ahead in (1, 3):
            for keep in range(ahead + 1):
                ours = written(make, IDS[:context])
                mark = CacheMark([ours], ahead=ahead)
                tail = IDS[context : context + ahead]
                write(ours, tail)
                held = mark.back(keep)
                assert held in {0, keep}
                theirs = written(make, IDS[:context], tail[:held])
                for after in ([], [99], [98, 97, 96, 95]):
                    write(ours, after)
                    write(theirs, after)
                    assert differences([ours], [theirs]) == [], (context, ahead, keep, after)


@pytest.mark.parametrize(
    ("make", "last"),
    [
        (KVCache, 30),
        (ConcatenateKVCache, -1),
        (lambda: ArraysCache(1), -1),
        (lambda: RotatingKVCache(8), 4),  # 4 and 3 more: its newest entry stays below the 8th
        (lambda: ChunkedKVCache(8), 5),  # 5 and 3 more: the chunk is just full
    ],
    ids=["kv", "concatenate", "state", "ring", "chunked"],
)
def test_tokens_are_kept_while_trimming_takes_the_others_back(
    make: Callable[[], Any], last: int
) -> None:
    """What is kept need not be forwarded again; ``last``: the longest context that allows it."""
    for context in range(1, 14):
        entry = written(make, IDS[:context])
        mark = CacheMark([entry], ahead=3)
        write(entry, IDS[context : context + 3])
        assert mark.back(2) == (2 if context <= last else 0), context


def test_a_chunk_that_was_taken_back_has_room_again() -> None:
    """What counts is what the chunk holds, not how many tokens went before."""
    entry = written(lambda: ChunkedKVCache(8), IDS[:11])
    assert entry.start_position > 0
    entry.trim(5)
    mark = CacheMark([entry], ahead=3)
    write(entry, IDS[20:23])
    assert mark.back(2) == 2
    _, values = entry.keys_and_values()
    assert values[0, 0, -2:, 0].tolist() == [21.5, 22.5]


def test_all_entries_go_back_to_the_same_token() -> None:
    """One that cannot keep a part takes the others with it."""
    keys, state = written(KVCache, IDS[:4]), written(lambda: ArraysCache(1), IDS[:4])
    mark = CacheMark([keys, state], ahead=3)
    write(keys, IDS[4:7])
    write(state, IDS[4:7])
    assert mark.back(2) == 0
    assert keys.offset == 4
    assert differences([state], [written(lambda: ArraysCache(1), IDS[:4])]) == []


def test_fewer_forwards_than_announced_may_follow() -> None:
    entry = written(KVCache, IDS[:4])
    mark = CacheMark([entry], ahead=9)
    write(entry, IDS[4:6])
    assert mark.back(1) == 1
    assert differences([entry], [written(KVCache, IDS[:5])]) == []


def test_what_can_be_trimmed_is_not_copied() -> None:
    """A mark costs no memory there, however long the context."""
    entry = written(KVCache, IDS[:4])
    keys, values = mx.zeros((1, 1, 1, 1 << 12)), mx.zeros((1, 1, 1, 1 << 12))
    wide = KVCache()
    wide.update_and_fetch(keys, values)
    mx.eval(wide.state)
    before = mx.get_active_memory()
    mark = CacheMark([wide, entry], ahead=2)
    mx.eval(wide.state)
    assert mx.get_active_memory() == before
    assert mark.back(0) == 0


def test_an_entry_may_hold_arrays_in_any_container() -> None:
    """Handles go as deep as containers do: what is written in place afterwards is undone."""

    class Deep(ArraysCache):
        def __init__(self) -> None:
            super().__init__(1)
            self.parts = ({"a": [mx.array([1.0])]}, "name", 3)

        def is_trimmable(self) -> bool:
            return False

    entry = Deep()
    mark = CacheMark([entry], ahead=1)
    array = entry.parts[0]["a"][0]
    array[0] = 7.0
    entry.parts[0]["b"] = []
    assert mark.back(0) == 0
    (held, name, number) = entry.parts
    assert (name, number) == ("name", 3)
    assert held.keys() == {"a"}
    assert held["a"][0].tolist() == [1.0]


def test_an_entry_of_a_models_own_making_goes_back_to_the_mark() -> None:
    """It says nothing about trimming."""

    class Own:
        def __init__(self) -> None:
            self.total = mx.zeros(1)
            self.count = 0

    entry = Own()
    mark = CacheMark([entry], ahead=2)
    entry.total[0] = 7.0
    entry.count += 1
    assert mark.back(1) == 0
    assert entry.total.tolist() == [0.0]
    assert entry.count == 0
