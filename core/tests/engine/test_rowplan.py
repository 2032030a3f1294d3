"""How large a common window is made, and what it is booked as."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxfill.policy.cost import CostCurve
from mlxfill.policy.plan import Candidate, Outcome, best_plan, saved

CURVE = CostCurve({1: 1.0, 2: 1.1, 4: 1.3, 8: 1.7, 32: 4.1}, fixed=True)
SURE, HOPELESS = (lambda _: 1.0), (lambda _: 0.02)
RICH = 100.0


def window_size(rows: list[Candidate], curve: CostCurve, *, budget: float) -> int:
    return best_plan(rows, curve, budget).size


CANDIDATE = st.builds(
    lambda known, limit, rate, cost: Candidate(known, limit, lambda _: rate, cost),
    st.integers(1, 4),
    st.integers(0, 8),
    st.floats(0, 1),
    st.floats(0, 0.5),
)


@given(st.lists(CANDIDATE, min_size=1, max_size=6), st.floats(0, 0.6), st.floats(0, 10))
def test_a_window_is_the_best_of_those_that_the_budget_allows(
    rows: list[Candidate], rewind: float, budget: float
) -> None:
    curve = CostCurve(dict(CURVE.points), rewind=rewind, fixed=True)
    size = window_size(rows, curve, budget=budget)
    assert 1 <= size <= max(row.known + row.limit for row in rows)
    sure = max(row.known for row in rows)
    if size > sure:  # all drafts wrong: no more is lost than there is
        drafted = [min(size - c.known, c.limit) for c in rows]
        cost = sum(max(n, 0) * c.draft_cost for n, c in zip(drafted, rows, strict=True))
        counts = [Outcome(c.known, max(n, 0), 0) for n, c in zip(drafted, rows, strict=True)]
        assert saved(counts, curve, cost) >= -budget - 1e-9


def test_one_row_that_is_sure_does_not_lengthen_the_window_of_many_that_ride_along() -> None:
    steep = CostCurve({1: 1.0, 2: 1.5, 8: 4.5}, fixed=True)
    sure, rest = Candidate(1, 7, SURE), [Candidate(1)] * 7
    assert window_size([sure], steep, budget=RICH) == 8
    assert window_size([sure, *rest], steep, budget=RICH) == 1


def test_drafts_that_cost_more_than_they_win_are_not_made() -> None:
    cheap, dear = Candidate(1, 4, lambda _: 0.8, 0.02), Candidate(1, 4, lambda _: 0.8, 0.3)
    assert window_size([cheap] * 4, CURVE, budget=RICH) > 1
    assert window_size([dear] * 4, CURVE, budget=RICH) == 1


def test_a_dear_rewind_keeps_doubtful_drafts_out() -> None:
    doubtful = [Candidate(1, 2, lambda _: 0.5)] * 4
    dear = CostCurve(dict(CURVE.points), rewind=1.0, fixed=True)
    assert window_size(doubtful, CURVE, budget=RICH) > 1
    assert window_size(doubtful, dear, budget=RICH) == 1
    assert window_size([Candidate(1, 2, SURE)] * 4, dear, budget=RICH) == 3  # nothing to take back


def test_an_empty_budget_bets_nothing_but_asserted_ids_go_on() -> None:
    assert window_size([Candidate(1, 8, HOPELESS)], CURVE, budget=0.0) == 1
    assert window_size([Candidate(5)], CURVE, budget=0.0) == 5


def test_asserted_ids_win_nothing_for_the_budget() -> None:
    assert saved([Outcome(6, 0, 0), Outcome(1, 0, 0)], CURVE) == 0.0


def test_rows_start_from_the_curve_of_one_request() -> None:
    assert CostCurve(dict(CURVE.points)).for_rows(4).cost(2) == pytest.approx(
        CURVE.cost(8) / CURVE.cost(4)
    )
    fixed = CostCurve.free()
    assert fixed.for_rows(4) is fixed
