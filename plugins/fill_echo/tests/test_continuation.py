"""What several places agree on, against a walk that is easy to see through."""

from __future__ import annotations

from hypothesis import assume, given
from hypothesis import strategies as st

from mlxfill_fill_echo.continuation import Continuation, common

STRETCHES = st.lists(st.lists(st.integers(0, 2), max_size=6), min_size=1, max_size=5)


def walked(stretches: list[list[int]], delimiters: set[int]) -> Continuation:
    """One id at a time: those that ran out drop out, the others must agree."""
    span: list[int] = []
    forked = closed = False
    while not closed:
        going_on = [s[len(span)] for s in stretches if len(s) > len(span)]
        forked = len(set(going_on)) > 1
        if forked or not going_on:
            break
        span.append(going_on[0])
        closed = span[-1] in delimiters
    agreed = sum(len(s) >= len(span) for s in stretches)
    return Continuation(span, forked, agreed, closed)


@given(STRETCHES, st.sets(st.integers(0, 2), max_size=1))
def test_goes_on_while_all_go_on_alike(stretches: list[list[int]], delimiters: set[int]) -> None:
    assert common(stretches, delimiters) == walked(stretches, delimiters)


@given(STRETCHES, st.randoms())
def test_the_order_of_the_places_does_not_matter(
    stretches: list[list[int]], random: object
) -> None:
    shuffled = list(stretches)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assume(shuffled != stretches)
    assert common(shuffled, set()) == common(stretches, set())


def test_a_fork_after_the_delimiter_is_none() -> None:
    found = common([[1, 2, 9, 3], [1, 2, 9, 4]], {9})
    assert found == Continuation([1, 2, 9], forked=False, agreed=2, closed=True)


def test_a_place_that_runs_out_does_not_hold_the_whole() -> None:
    found = common([[1, 2], [1, 2, 3, 4]], set())
    assert found == Continuation([1, 2, 3, 4], forked=False, agreed=1, closed=False)
