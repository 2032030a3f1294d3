"""When a window pays: cost curve, acceptance statistics, the choice of depth."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxfill.policy.acceptance import AcceptanceStats
from mlxfill.policy.cost import CostCurve, points_from
from mlxfill.policy.plan import Candidate, Gate, Outcome
from mlxfill_testing import Guest, engine_with, plain, shared_model

PROMPT = [7, 30, 9, 30, 11, 4]

curves = st.dictionaries(st.integers(2, 64), st.floats(0.5, 64), min_size=1, max_size=6).map(
    lambda points: {1: 1.0, **points}
)


# --- cost curve ------------------------------------------------------------------------------


@given(points=curves, sizes=st.lists(st.integers(1, 200), min_size=1, max_size=8))
def test_a_curve_goes_through_its_points_and_straight_between_them(
    points: dict[int, float], sizes: list[int]
) -> None:
    curve, known = CostCurve(dict(points)), sorted(points)
    for n in sizes:
        cost = curve.cost(n)
        below = max(k for k in known if k <= n)
        above = next((k for k in known if k >= n), None)
        if above is None:
            slope = max((points[known[-1]] - points[1]) / (known[-1] - 1), 0.0)
            assert cost == pytest.approx(points[known[-1]] + (n - known[-1]) * slope)
        elif above == below:
            assert cost == points[n]
        else:
            share = (n - below) / (above - below)
            assert cost == pytest.approx(points[below] + share * (points[above] - points[below]))


@given(points=curves, sizes=st.lists(st.integers(1, 80), min_size=2, max_size=12))
def test_a_cost_does_not_depend_on_what_was_asked_before(
    points: dict[int, float], sizes: list[int]
) -> None:
    asked = CostCurve(dict(points))
    for n in sizes:
        assert asked.cost(n) == CostCurve(dict(points)).cost(n)


def test_of_one_point_nothing_is_known_so_ids_cost_steps() -> None:
    curve = CostCurve()
    assert [curve.cost(n) for n in (1, 2, 5)] == [1.0, 2.0, 5.0]


@given(
    points=curves,
    times=st.lists(st.tuples(st.integers(1, 32), st.floats(0.01, 1e6)), min_size=1, max_size=20),
)
def test_times_refine_a_curve_and_never_break_it(
    points: dict[int, float], times: list[tuple[int, float]]
) -> None:
    curve = CostCurve(dict(points))
    for n, ms in times:
        before = curve.cost(n)
        curve.observe(n, ms)
        after = curve.cost(n)
        assert math.isfinite(after)
        assert after > 0
        assert after <= 3 * before or n == 1
        assert curve.cost(1) == 1.0


def test_what_is_seen_again_and_again_is_believed() -> None:
    curve = CostCurve({1: 1.0, 8: 8.0})
    for _ in range(60):
        curve.observe(1, 10.0)
        curve.observe(8, 15.0)
    assert curve.cost(8) == pytest.approx(1.5, rel=0.05)


def test_a_fixed_curve_learns_nothing() -> None:
    for curve in (CostCurve.free(), CostCurve.linear()):
        before = [curve.cost(n) for n in range(1, 40)]
        for _ in range(20):
            curve.observe(1, 10.0)
            curve.observe(8, 5000.0)
        assert [curve.cost(n) for n in range(1, 40)] == before


def test_times_become_costs_of_at_least_one_step() -> None:
    assert points_from({1: 2.0, 2: 1.5, 8: 6.0}) == {1: 1.0, 2: 1.0, 8: 3.0}


# --- acceptance ------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(0, 100), st.booleans()), max_size=60))
def test_rates_stay_probabilities(judged: list[tuple[int, bool]]) -> None:
    acceptance = AcceptanceStats()
    for evidence, hit in judged:
        before = acceptance.rate(evidence)
        acceptance.record(evidence, hit)
        after = acceptance.rate(evidence)
        assert after >= before if hit else after <= before
        assert 0 < after < 1


def test_a_rate_follows_what_happens_and_forgets() -> None:
    acceptance = AcceptanceStats()
    untouched = acceptance.rate(10)
    for _ in range(100):
        acceptance.record(2, hit=True)
    assert acceptance.rate(2) > 0.95
    for _ in range(100):
        acceptance.record(2, hit=False)
    assert acceptance.rate(2) < 0.05
    assert acceptance.rate(10) == untouched


# --- depth -----------------------------------------------------------------------------------


def guesses(rate: float, limit: int, draft_cost: float = 0.0) -> Candidate:
    """All positions are right with this probability."""
    return Candidate(limit=limit, rate=lambda _: rate, draft_cost=draft_cost)


@given(rate=st.floats(0.0, 0.999), limit=st.integers(0, 40), points=curves)
def test_a_depth_is_never_beyond_the_limit_nor_a_bad_bet(
    rate: float, limit: int, points: dict[int, float]
) -> None:
    curve = CostCurve(dict(points), fixed=True)
    plan = Gate(curve).plan(guesses(rate, limit))
    assert 0 <= plan.depth <= limit
    if plan.depth:
        expected = sum(rate**i for i in range(plan.depth + 1))
        assert expected > curve.cost(1 + plan.depth)
        assert plan.gain == pytest.approx(expected - curve.cost(1 + plan.depth))
    else:
        assert plan.gain == 0


def test_where_ids_cost_steps_the_gate_stays_closed() -> None:
    gate = Gate(CostCurve.linear())
    for rate in (0.1, 0.5, 0.9, 0.99):
        for _ in range(100):
            assert gate.plan_offer(guesses(rate, 16), due=True).depth == 0
            gate.budget.refill()


def test_where_windows_are_free_depth_grows_with_acceptance() -> None:
    depths = [Gate(CostCurve.free()).plan(guesses(r, 16)).depth for r in (0.0, 0.3, 0.7, 0.99)]
    assert depths == sorted(depths)
    assert depths[0] == 0
    assert depths[-1] == 16


def test_a_gate_that_is_off_takes_all_that_is_offered() -> None:
    gate = Gate(CostCurve.linear(), enabled=False)
    assert gate.plan(guesses(0.0, 9)).depth == 9


def test_expensive_drafts_are_not_made() -> None:
    cheap = Gate(CostCurve.free()).plan(guesses(0.6, 8))
    dear = Gate(CostCurve.free()).plan(guesses(0.6, 8, draft_cost=0.9))
    assert cheap.depth > 0
    assert dear.depth == 0


def test_a_gate_does_not_bet_what_it_has_not_won() -> None:
    """Windows that look good and lose are stopped before the request has lost much."""
    curve = CostCurve({1: 1.0, 8: 1.6}, fixed=True)
    gate, lost = Gate(curve), 0.0
    for _ in range(200):
        plan = gate.plan(guesses(0.9, 7))
        if not plan.depth:
            break
        gate.charge([Outcome(1, plan.depth, 0)], curve)
        lost += curve.cost(1 + plan.depth) - 1
    else:
        pytest.fail("it went on betting")
    assert lost < 2


# --- with an engine ----------------------------------------------------------------------------


def run(curve: CostCurve, guest: Guest, count: int = 60) -> Any:
    with engine_with(shared_model("llama"), guest, gate=True, curve=curve) as engine:
        result = engine.generate(PROMPT, max_tokens=count, eos_token_ids=())
    assert result.tokens == plain(shared_model("llama"), PROMPT, count).tokens
    assert result.faults == []
    return result


def truth(count: int = 60) -> list[int]:
    return [*PROMPT, *plain(shared_model("llama"), PROMPT, count).tokens]


@pytest.mark.parametrize("accuracy", [0.0, 0.7, 1.0])
@pytest.mark.parametrize("make", [Guest.offering, Guest.drafting])
def test_no_window_is_tried_where_n_ids_cost_n_steps(make: Any, accuracy: float) -> None:
    result = run(CostCurve.linear(), make(truth(), accuracy))
    spec = result.stats.spec
    assert spec["windows"] == 0
    assert spec["left_out"] > 0
    assert spec["offers"] - spec["left_out"] in {0, 1}  # the budget may cut the last one to one id
    assert (
        result.stats.target_forwards
        == plain(shared_model("llama"), PROMPT, 60).stats.target_forwards
    )


@pytest.mark.parametrize("make", [Guest.offering, Guest.drafting])
def test_right_guesses_are_used_where_windows_are_free(make: Any) -> None:
    result = run(CostCurve.free(), make(truth(), 1.0))
    assert result.stats.tokens_per_forward > 2
    assert result.stats.spec["left_out"] == 0


@pytest.mark.parametrize("make", [Guest.offering, Guest.drafting])
def test_a_producer_that_is_always_wrong_is_used_less_and_less(make: Any) -> None:
    result = run(CostCurve.free(), make(truth(120), 0.0), 120)
    spec = result.stats.spec
    assert spec["accepted"] == 0
    assert spec["windows"] < 60


@pytest.mark.parametrize("make", [Guest.offering, Guest.drafting])
@pytest.mark.parametrize("rows", [1, 3])
def test_offers_that_were_left_out_are_counted_for_each_row(make: Any, rows: int) -> None:
    guest, asked = make(truth(), 1.0), {"prompt": PROMPT, "max_tokens": 20}
    with engine_with(shared_model("llama"), guest, gate=True, curve=CostCurve.linear()) as engine:
        results = engine.generate_batch([asked] * rows)
    for result in results:
        spec = result.stats.spec
        assert spec["windows"] == 0
        assert 0 < spec["left_out"] <= spec["offers"]
