"""The index against a search of the text itself."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mlxfill_fill_echo.index import RunIndex

IDS = st.lists(st.integers(0, 2), max_size=50)
RUNS = st.integers(1, 4)


def made(k: int, *texts: list[int], limit: int = 1000) -> RunIndex:
    index = RunIndex(k, limit)
    for text in texts:
        index.extend(text)
    return index


def searched(text: list[int], k: int, limit: int) -> list[int]:
    """Positions after earlier occurrences of the last ``k`` ids, newest first."""
    ends = range(min(len(text), limit) - 1, k - 1, -1)
    return [end for end in ends if len(text) >= k and text[end - k : end] == text[len(text) - k :]]


@given(IDS, RUNS, st.integers(1, 60), st.integers(1, 5))
def test_finds_the_newest_earlier_occurrences(
    text: list[int], k: int, limit: int, most: int
) -> None:
    index = made(k, text, limit=limit)
    assert index.after(index.tail, most) == searched(text, k, limit)[:most]


@given(IDS, IDS, RUNS, st.integers(1, 60))
def test_pieces_do_not_matter(first: list[int], second: list[int], k: int, limit: int) -> None:
    whole, parts = made(k, first + second, limit=limit), made(k, first, second, limit=limit)
    assert whole.after(whole.tail, 99) == parts.after(parts.tail, 99)
    assert whole.ids == parts.ids


@given(IDS, IDS, RUNS, st.integers(1, 60), st.data())
def test_what_was_cut_off_leaves_no_trace(
    text: list[int], more: list[int], k: int, limit: int, data: st.DataObject
) -> None:
    length = data.draw(st.integers(0, len(text)))
    index = made(k, text, limit=limit)
    index.cut(length)
    fresh = made(k, text[:length], limit=limit)
    for token in more:
        assert (index.tail, index.ids) == (fresh.tail, fresh.ids)
        assert index.after(index.tail, 99) == fresh.after(fresh.tail, 99)
        index.extend([token])
        fresh.extend([token])


def test_a_full_index_still_looks_up_and_copies() -> None:
    index = made(2, [1, 2, 3, 4, 5, 6, 1, 2], limit=4)
    assert index.after(index.tail, 9) == [2]
    assert index.stretches([2], 5) == [[3, 4, 5, 6, 1]]
    index = made(2, [7, 7, 7, 7, 1, 2, 3, 1, 2], limit=4)
    assert index.after(index.tail, 9) == []


@given(st.lists(IDS, min_size=1, max_size=4), st.lists(st.integers(0, 2), min_size=2))
def test_texts_kept_apart_do_not_touch(texts: list[list[int]], sought: list[int]) -> None:
    index, run = RunIndex(2, 1000), made(2, sought)
    for text in texts:
        index.extend_apart(text)
    places = index.after(run.tail, 99)
    expected = [
        text[end : end + 5]
        for text in reversed(texts)
        for end in range(len(text), 1, -1)
        if text[end - 2 : end] == sought[-2:] and end < len(text)
    ]
    assert [s for s in index.stretches(places, 5) if s] == expected
