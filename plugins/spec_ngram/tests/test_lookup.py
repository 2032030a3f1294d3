"""Both lookups against slow ones that are easy to see through."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mlxfill_spec_ngram import Guesser, NgramSettings, make_lookup

if TYPE_CHECKING:
    from mlxfill_spec_ngram.settings import Match


@st.composite
def edited_copies(draw: st.DrawFn) -> list[int]:
    """A text, then pieces of it with other ids in between."""
    text = draw(st.lists(st.integers(0, 30), min_size=10, max_size=25))
    pieces = list(text)
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text) - 1))
        pieces += text[start : start + draw(st.integers(1, 20))]
        pieces += draw(st.lists(st.integers(25, 35), max_size=2))
    return pieces


HISTORIES = st.lists(st.integers(0, 3), max_size=60) | edited_copies()
MATCHES: st.SearchStrategy[Match] = st.sampled_from(["first", "recent"])
LENGTHS = st.tuples(st.integers(1, 8), st.integers(1, 8)).map(lambda pair: tuple(sorted(pair)))


@st.composite
def settings_of(draw: st.DrawFn, *, adaptive: bool) -> NgramSettings:
    min_ngram, max_ngram = draw(LENGTHS)
    depth = draw(st.integers(1, 12))
    return NgramSettings(
        min_ngram=min_ngram,
        max_ngram=max_ngram,
        depth=depth,
        max_depth=depth + draw(st.integers(0, 40)),
        match=draw(MATCHES),
        adaptive=adaptive,
    )


ANY_SETTINGS = settings_of(adaptive=True) | settings_of(adaptive=False)


def occurrence(history: Sequence[int], settings: NgramSettings) -> tuple[int, int]:
    """Where the longest run that ends the history goes on, searched from the history alone."""
    for length in range(settings.max_ngram, settings.min_ngram - 1, -1):
        ends = range(length, len(history))
        if settings.match == "recent":
            ends = ends[::-1]
        for end in ends:
            if history[end - length : end] == history[len(history) - length :]:
                return end, length
    return 0, 0


def agreement(history: Sequence[int], end: int) -> int:
    """How many ids, 32 at most, before ``end`` equal those at the end of the history."""
    same = 0
    while same < min(end, 32) and history[end - 1 - same] == history[-1 - same]:
        same += 1
    return same


class SlowFollower:
    """What ``adaptive = true`` promises, without an index."""

    def __init__(self, settings: NgramSettings) -> None:
        self.settings = settings
        self.history: list[int] = []
        self.next, self.length = 0, 0
        self.broken: int | None = None
        self.broken_at = 0

    def add(self, token: int) -> None:
        if self.next and self.history[self.next] == token:
            self.next, self.length = self.next + 1, self.length + 1
        elif self.next:
            if self.length >= 4:
                self.broken, self.broken_at = self.next, len(self.history)
            self.next, self.length = 0, 0
        self.history.append(token)

    def guess(self) -> list[int]:
        if self.length < 3:
            self.look()
        if not self.next:
            return []
        depth = self.settings.depth + 3 * (self.length - 3)
        depth = max(1, min(depth, self.settings.max_depth))
        period = len(self.history) - self.next
        return [self.history[self.next + i % period] for i in range(depth)]

    def look(self) -> None:
        self.next, self.length = occurrence(self.history, self.settings)
        if self.next:
            self.length = max(self.length, agreement(self.history, self.next))
        if self.length < 4 and self.broken and len(self.history) - self.broken_at <= 16:
            self.resume(self.broken)

    def resume(self, broken: int) -> None:
        for at in range(broken, min(broken + 16, self.broken_at)):
            if self.history[at] == self.history[-1]:
                self.next, self.length = at + 1, agreement(self.history, at + 1)
                return
        if not self.next:
            self.next, self.length = broken + 1, 1


def fed(settings: NgramSettings, *chunks: Sequence[int], seed: Sequence[int] = ()) -> Guesser:
    lookup = make_lookup(settings)
    lookup.seed(seed)
    for chunk in chunks:
        lookup.extend(chunk)
    return lookup


@given(HISTORIES, settings_of(adaptive=False))
def test_fixed_lookup_is_the_published_rule(ids: list[int], settings: NgramSettings) -> None:
    start, _ = occurrence(ids, settings)
    expected = ids[start : start + settings.depth] if start else []
    assert list(fed(settings, ids).guess()) == expected


@given(HISTORIES, settings_of(adaptive=True), st.lists(st.booleans(), min_size=60, max_size=120))
def test_following_lookup_keeps_its_promise(
    ids: list[int], settings: NgramSettings, asked: list[bool]
) -> None:
    lookup, slow = make_lookup(settings), SlowFollower(settings)
    for token, ask in zip(ids, asked, strict=False):
        lookup.extend([token])
        slow.add(token)
        if ask:
            assert list(lookup.guess()) == slow.guess()


@given(HISTORIES, ANY_SETTINGS)
def test_a_guess_continues_an_earlier_place(ids: list[int], settings: NgramSettings) -> None:
    lookup = make_lookup(settings)
    for token in ids:
        lookup.extend([token])
        history, guess = list(lookup.history), list(lookup.guess())
        goes_on = [history[start:] * (len(guess) + 1) for start in range(1, len(history))]
        assert not guess or any(text[: len(guess)] == guess for text in goes_on)
        assert len(guess) <= settings.max_depth


@given(HISTORIES, ANY_SETTINGS, st.data())
def test_chunks_do_not_matter(ids: list[int], settings: NgramSettings, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(ids)))
    whole = fed(settings, ids)
    parts = fed(settings, ids[:cut], ids[cut:])
    assert list(whole.guess()) == list(parts.guess())
    more = data.draw(HISTORIES)
    whole.extend(more)
    for token in more:
        parts.extend([token])
    assert list(whole.guess()) == list(parts.guess())
    assert list(whole.history) == ids + more


@given(HISTORIES, HISTORIES, HISTORIES, ANY_SETTINGS)
@example([0], [1], [2, 0, 1, 3, 0, 0, 1], NgramSettings())
def test_a_seeded_history_is_as_one_added_id_by_id(
    prompt: list[int], second: list[int], reply: list[int], settings: NgramSettings
) -> None:
    seeded = make_lookup(settings)
    seeded.seed(prompt)
    seeded.guess()
    seeded.seed(second)
    seeded.extend(reply)
    assert list(seeded.guess()) == list(fed(settings, prompt + second + reply).guess())


@pytest.mark.parametrize("match", ["first", "recent"])
def test_first_and_recent_differ_where_the_text_forked(match: Match) -> None:
    lookup = fed(NgramSettings(match=match, adaptive=False, depth=1), [7, 1, 7, 2, 8, 7])
    assert list(lookup.guess()) == [1 if match == "first" else 2]


def test_a_longer_run_is_preferred() -> None:
    lookup = fed(NgramSettings(depth=1), [1, 2, 3, 50, 2, 3, 60, 9, 3, 70, 1, 2, 3])
    assert list(lookup.guess()) == [50]


def test_a_draft_grows_with_the_match() -> None:
    text = list(range(100, 200))
    lookup = fed(NgramSettings(), seed=text)
    lengths = []
    for token in text[:20]:
        lookup.extend([token])
        guess = list(lookup.guess())
        lengths.append(len(guess))
        assert guess == (text + text[:20])[token - 99 :][: len(guess)]
    assert lengths[:5] == [4, 7, 10, 13, 16]
    assert lengths[-1] == 48


@pytest.mark.parametrize("period", [1, 2, 5, 40])
def test_a_loop_goes_on(period: int) -> None:
    loop = list(range(period))
    lookup = fed(NgramSettings(), seed=loop * (32 // period + 3))
    assert list(lookup.guess()) == (loop * 48)[:48]


def test_a_renamed_word_is_passed_over() -> None:
    old = [10, 11, 12, 13, 99, 14, 15, 16, 17]
    lookup = fed(NgramSettings(), seed=[*old, 0])
    for token in [10, 11, 12, 13]:
        lookup.extend([token])
        lookup.guess()
    lookup.extend([77])
    assert list(lookup.guess())[:3] == [14, 15, 16]


def test_a_word_renamed_to_several_ids_is_passed_over() -> None:
    old = [10, 11, 12, 13, 99, 14, 15, 16, 17]
    lookup = fed(NgramSettings(), seed=[14, 5, *old, 77, 4, 78, 14, 3])
    for token in [10, 11, 12, 13]:
        lookup.extend([token])
        lookup.guess()
    lookup.extend([77, 78, 14])
    assert list(lookup.guess())[:3] == [15, 16, 17]


@pytest.mark.parametrize(("new_ids", "offered"), [(1, True), (16, True), (17, False)])
def test_a_lost_match_is_given_up_after_16_ids(new_ids: int, *, offered: bool) -> None:
    old = [10, 11, 12, 13, 99, 14, 15, 16, 17]
    lookup = fed(NgramSettings(), seed=[*old, 0])
    for token in [10, 11, 12, 13]:
        lookup.extend([token])
        lookup.guess()
    lookup.extend(range(200, 200 + new_ids))
    assert bool(lookup.guess()) == offered


@pytest.mark.parametrize("adaptive", [True, False])
def test_the_evidence_is_the_length_of_the_match(*, adaptive: bool) -> None:
    lookup = fed(NgramSettings(adaptive=adaptive), seed=[1, 2, 3, 4, 5, 6])
    evidence = []
    for token in [9, 1, 2, 3, 4, 5]:
        lookup.extend([token])
        lookup.guess()
        evidence.append(lookup.evidence)
    assert evidence == ([0, 1, 2, 3, 4, 5] if adaptive else [0, 1, 2, 3, 3, 3])


@pytest.mark.parametrize("history", [[], [1], [1, 2, 3]])
@pytest.mark.parametrize("adaptive", [True, False])
def test_nothing_is_guessed_where_nothing_repeats(history: list[int], *, adaptive: bool) -> None:
    assert list(fed(NgramSettings(adaptive=adaptive), history).guess()) == []


@pytest.mark.parametrize("adaptive", [True, False])
def test_max_ngram_may_exceed_the_history(*, adaptive: bool) -> None:
    lookup = fed(NgramSettings(max_ngram=500, adaptive=adaptive), [1, 2, 1])
    assert list(lookup.guess())[:2] == [2, 1]


def lines_run(call: Callable[[], object]) -> int:
    """Lines of the plugin that a call runs."""
    count = 0

    def trace(frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal count
        count += event == "line" and "mlxfill_spec_ngram" in frame.f_code.co_filename
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("adaptive", [True, False])
@pytest.mark.parametrize("max_ngram", [3, 500])
@pytest.mark.parametrize("match", ["first", "recent"])
def test_work_per_token_does_not_grow_with_the_history(
    match: Match, max_ngram: int, *, adaptive: bool
) -> None:
    settings = NgramSettings(match=match, max_ngram=max_ngram, adaptive=adaptive)
    work = []
    for repeats in (50, 5000):
        lookup = fed(settings, seed=[1, 2, 3, 4, 1, 2, 5, 3, 9, 9] * repeats)
        steps = [1, 2, 3, 4, 8, 9, 9, 1, 2, 6, 6]
        work.append(
            [(lines_run(partial(lookup.extend, [step])), lines_run(lookup.guess)) for step in steps]
        )
    assert work[0] == work[1]
