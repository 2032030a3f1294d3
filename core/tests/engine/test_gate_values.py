"""What the gate reckons with, to the number: costs, rates, the purse, and depths that follow."""

from __future__ import annotations

import math
from itertools import pairwise
from statistics import median
from typing import Any

import pytest

from mlxfill.policy.acceptance import AcceptanceStats, bucket_of
from mlxfill.policy.budget import RetrySchedule, SpeculationBudget
from mlxfill.policy.constants import ENOUGH, NEWEST, RETIME
from mlxfill.policy.cost import CostCurve, points_from
from mlxfill.policy.plan import Candidate, Gate, Outcome

# --- costs -----------------------------------------------------------------------------------


def test_a_free_curve_costs_one_step_whatever_the_size() -> None:
    curve = CostCurve.free()
    assert [curve.cost(n) for n in (1, 2, 7, 300)] == [1.0] * 4
    assert curve.points == {1: 1.0, 1 << 20: 1.0}
    assert curve.fixed


def test_a_linear_curve_costs_a_step_an_id() -> None:
    curve = CostCurve.linear()
    assert [curve.cost(n) for n in (1, 2, 7, 300)] == [1.0, 2.0, 7.0, 300.0]
    assert curve.fixed


def test_a_curve_is_interpolated_and_goes_on_with_its_slope() -> None:
    curve = CostCurve({1: 1.0, 3: 2.0, 7: 4.0, 9: 4.5})
    costs = {1: 1.0, 2: 1.5, 3: 2.0, 4: 2.5, 5: 3.0, 6: 3.5, 7: 4.0, 8: 4.25, 9: 4.5}
    assert {n: curve.cost(n) for n in costs} == costs
    slope = 3.5 / 8
    for n in (10, 11, 25):
        assert curve.cost(n) == pytest.approx(4.5 + (n - 9) * slope)


def test_a_curve_that_falls_goes_on_flat() -> None:
    assert CostCurve({1: 1.0, 4: 0.75}).cost(40) == 0.75


def test_a_curve_without_its_first_point_begins_with_what_it_has() -> None:
    curve = CostCurve({4: 2.0, 6: 3.0})
    assert [curve.cost(n) for n in (1, 3, 4, 5, 6, 7, 8)] == [2.0, 2.0, 2.0, 2.5, 3.0, 3.5, 4.0]


def test_of_one_point_it_is_assumed_that_ids_cost_steps() -> None:
    assert [CostCurve().cost(n) for n in (1, 2, 9)] == [1.0, 2.0, 9.0]
    assert [CostCurve({4: 2.0}).cost(n) for n in (4, 5, 9)] == [2.0, 3.0, 7.0]


def test_nothing_is_fixed_or_rewound_unless_said() -> None:
    curve = CostCurve()
    assert not curve.fixed
    assert curve.rewind == 0.0
    assert curve.points == {1: 1.0}


def test_a_curve_is_what_it_knows_of_windows() -> None:
    """Whatever was asked of it, and however long a step takes."""
    asked, other = CostCurve({1: 1.0, 4: 2.0}), CostCurve({1: 1.0, 4: 2.0})
    asked.cost(9)
    timed(asked, 5.0)
    assert asked == other
    assert repr(asked) == "CostCurve(points={1: 1.0, 4: 2.0}, rewind=0.0, fixed=False)"
    asked.observe(4, 10.0)
    assert asked == other  # as it had thought
    asked.observe(4, 20.0)
    assert asked != other


def test_a_step_takes_the_median_of_the_newest_nine() -> None:
    curve = CostCurve()
    assert curve.step_ms == 0.0
    times = [5.0, 900.0, 7.0, 6.0, 8.0, 3.0, 400.0, 9.0, 4.0, 2.0, 1.0, 700.0]
    for at, ms in enumerate(times, 1):
        curve.observe(1, ms)
        enough = at >= ENOUGH  # one alone may have been a stall
        assert curve.step_ms == (median(times[max(at - 9, 0) : at]) if enough else 0.0)


def timed(curve: CostCurve, ms: float) -> None:
    """As many plain steps as are needed."""
    for _ in range(ENOUGH):
        curve.observe(1, ms)


def observed(curve: CostCurve, n: int, *times: float) -> list[float]:
    costs = []
    for ms in times:
        curve.observe(n, ms)
        costs.append(curve.cost(n))
    return costs


def test_a_window_is_believed_by_half_at_first_and_less_later() -> None:
    curve = CostCurve({1: 1.0, 4: 4.0})
    timed(curve, 10.0)
    expected, known = [], 4.0
    for weight in (0.5, 0.25, 0.5 / 3, 0.125, 1 / NEWEST):
        known += weight * (2.0 - known)
        expected.append(known)
    assert observed(curve, 4, *[20.0] * 5) == pytest.approx(expected)
    assert curve.seen == {4: 5}
    assert curve.cost(1) == 1.0


def test_an_outlier_moves_a_cost_by_half_at_most() -> None:
    curve = CostCurve({1: 1.0, 4: 2.0})
    timed(curve, 10.0)
    assert observed(curve, 4, 9000.0, 9000.0) == pytest.approx([3.0, 3.75])


def test_what_is_seen_between_points_is_a_new_point() -> None:
    curve = CostCurve({1: 1.0, 8: 8.0})
    timed(curve, 10.0)
    assert curve.cost(4) == 4.0
    assert curve.cost(6) == 6.0
    assert observed(curve, 4, 20.0) == [3.0]
    assert curve.cost(8) == pytest.approx(1 + 7 * 2 / 3)
    assert curve.points.keys() == {1, 4, 8}


def test_windows_before_the_first_step_teach_nothing() -> None:
    curve = CostCurve({1: 1.0, 4: 2.0})
    assert observed(curve, 4, 90.0, 90.0) == [2.0, 2.0]
    assert curve.seen == {}


def test_two_ids_are_a_window() -> None:
    curve = CostCurve({1: 1.0, 2: 2.0})
    timed(curve, 10.0)
    assert observed(curve, 2, 10.0) == [1.5]
    assert curve.step_ms == 10.0


def test_a_fixed_curve_does_not_look_at_the_clock() -> None:
    curve = CostCurve({1: 1.0, 4: 2.0}, fixed=True)
    timed(curve, 10.0)
    assert observed(curve, 4, 90.0) == [2.0]
    assert curve.step_ms == 0.0


def test_times_become_costs() -> None:
    assert points_from({1: 4.0, 2: 3.0, 4: 6.0}) == {1: 1.0, 2: 1.0, 4: 1.5}


# --- rates -------------------------------------------------------------------------------------


def test_evidence_is_told_apart_more_finely_where_it_is_little() -> None:
    firsts = [0, 1, 2, 3, 4, 6, 9, 13, 21, 33]
    for evidence in range(80):
        assert bucket_of(evidence) == max(i for i, first in enumerate(firsts) if first <= evidence)


def test_the_more_was_right_the_likelier_is_the_next() -> None:
    """Before anything was judged."""
    rates = [AcceptanceStats().rate(evidence) for evidence in range(60)]
    assert rates == sorted(rates)
    assert all(0 < rate < 1 for rate in rates)
    assert rates[0] == pytest.approx(0.2)
    assert rates[-1] == pytest.approx(0.98)


def test_four_judged_positions_speak_as_loud_as_what_was_thought_before() -> None:
    acceptance = AcceptanceStats()
    acceptance.record(0, hit=True)
    assert acceptance.rate(0) == pytest.approx((0.8 * 0.96 + 1) / (4 * 0.96 + 1))
    acceptance.record(0, hit=False)
    assert acceptance.rate(0) == pytest.approx(
        (0.8 * 0.96 + 1) * 0.96 / ((4 * 0.96 + 1) * 0.96 + 1)
    )
    assert acceptance.rate(1) == AcceptanceStats().rate(1)


def test_evidence_of_one_bucket_is_learnt_together() -> None:
    acceptance = AcceptanceStats()
    acceptance.record(5, hit=False)
    assert acceptance.rate(4) == acceptance.rate(5) < AcceptanceStats().rate(4)
    assert acceptance.rate(6) == AcceptanceStats().rate(6)


# --- the budget ----------------------------------------------------------------------------------


def test_a_request_begins_with_a_stake_and_what_was_saved() -> None:
    for before, after in (
        (-3.0, 1.0),
        (0.5, 1.0),
        (1.0, 1.0),
        (1.25, 1.25),
        (1.5, 1.5),
        (90.0, 2.0),
    ):
        budget = SpeculationBudget(before)
        budget.renew()
        assert budget.steps == after
    assert SpeculationBudget().steps == 1.0


def test_plain_steps_bear_interest_up_to_a_bound() -> None:
    budget = SpeculationBudget(1.0)
    budget.refill()
    assert budget.steps == pytest.approx(1.01)
    for _ in range(1000):
        budget.refill(1)
    assert budget.steps == 2.0
    won = SpeculationBudget(60.0)
    won.refill()
    assert won.steps == 60.0


def test_what_is_owed_has_a_bound() -> None:
    budget = SpeculationBudget(1.0)
    budget.spend(2.0)
    assert budget.steps == pytest.approx(-2.0)  # a lost step counts a little more
    budget.spend(900.0)
    assert budget.steps == -4.0
    budget.spend(-1.0)
    assert budget.steps == -3.0


def test_a_gate_renews_the_budget_that_it_is_given_or_has_its_own() -> None:
    budget = SpeculationBudget(-2.0)
    gate = Gate(CostCurve.free(), budget=budget)
    assert gate.budget is budget
    assert budget.steps == 1.0
    assert Gate(CostCurve.free()).budget.steps == 1.0


def stepping(*times: float, points: dict[int, float] | None = None) -> CostCurve:
    curve = CostCurve(points or {1: 1.0, 8: 1.5})
    for ms in times:
        timed(curve, ms)
    return curve


def charged(gate: Gate, seconds: float, accepted: int, bound: float = math.inf) -> float:
    return gate.charge([Outcome(1, accepted, accepted)], gate.curve, seconds=seconds, bound=bound)


def test_time_is_booked_in_steps() -> None:
    gate = Gate(stepping(10.0), budget=SpeculationBudget(1.5))
    assert charged(gate, 0.015, 0) == pytest.approx(-0.5)
    assert charged(gate, 0.025, 3) == pytest.approx(1.5)
    assert gate.budget.steps == pytest.approx(2.25)


def test_a_stall_is_cut_and_nothing_is_won_by_no_token() -> None:
    gate = Gate(stepping(10.0), budget=SpeculationBudget(2.0))
    assert charged(gate, 5.0, 0, bound=1.5) == pytest.approx(-2.0)
    assert charged(gate, 0.001, 0) == 0.0  # it held a step at least


def test_tries_come_ever_more_rarely_until_one_pays() -> None:
    tries, at = RetrySchedule(), list[int]()
    for token in range(9000):
        tries.idle_tokens += 1
        if tries.due:
            at.append(token)
            tries.begin()
    assert [b - a for a, b in pairwise(at)][:3] == [32, 64, 128]
    tries.idle_tokens = 4095
    assert not tries.stale
    tries.idle_tokens = 4096
    assert tries.stale
    tries.paid()
    assert tries.retry_after == 16
    tries.paid(retry_after=0)
    assert tries.due
    tries.begin()
    assert tries.retry_after == 16


def test_a_plan_with_what_has_no_answer_is_made_ever_more_rarely() -> None:
    assert [RetrySchedule(idle).recheck_after for idle in (0, 15, 16, 80, 800)] == [1, 1, 2, 6, 51]


def test_a_budget_says_when_it_could_lose_so_much() -> None:
    assert SpeculationBudget(-0.5).refilled_after(0.25) == 75
    assert SpeculationBudget(1.0).refilled_after(0.25) == 0


def test_sizes_beyond_two_that_no_window_proved_may_cost_a_step_an_id() -> None:
    curve = stepping(10.0, points={1: 1.0, 2: 1.1, 8: 1.4, 16: 2.0})
    assert [curve.bound(n) for n in (1, 2, 8)] == pytest.approx([1.0, 1.1, 7.1])
    for _ in range(9):
        curve.observe(8, 14.0)
    assert curve.bound(8) == pytest.approx(1.4)
    assert curve.bound(4) == pytest.approx(1.4)
    assert curve.bound(10) == pytest.approx(3.4)
    assert CostCurve({1: 1.0, 8: 1.4}, fixed=True).bound(8) == 1.4


def test_what_a_window_shows_corrects_the_sizes_that_were_only_measured_at_the_start() -> None:
    curve = stepping(10.0, points={1: 1.0, 2: 2.0, 32: 32.0})
    for _ in range(60):
        curve.observe(2, 11.0)
    assert curve.cost(2) == pytest.approx(1.1, abs=0.01)
    assert curve.cost(32) < 5


@pytest.mark.parametrize(
    ("drafted", "accepted", "draft_cost", "won"),
    [
        (3, 3, 0.0, 4 - 1.75),
        (3, 2, 0.0, 3 - 1.75 * 1.2),
        (3, 0, 0.0, 1 - 1.75 * 1.2),
        (3, 3, 0.25, 4 - 1.75 - 0.75),
        (1, 0, 0.5, 1 - 1.25 * 1.2 - 0.5),
        (0, 0, 0.5, 0.0),
        (int("300"), int("300"), 0.0, 301 - 76.0),
    ],
)
def test_a_window_wins_its_tokens_and_costs_its_ids(
    drafted: int, accepted: int, draft_cost: float, won: float
) -> None:
    curve = CostCurve({1: 1.0, 5: 2.0}, rewind=0.2, fixed=True)
    gate = Gate(curve, budget=SpeculationBudget(2.0))
    gate.charge([Outcome(1, drafted, accepted)], curve, drafting=drafted * draft_cost)
    assert gate.budget.steps == pytest.approx(max(2.0 + (won if won > 0 else 1.5 * won), -4.0))


# --- depths --------------------------------------------------------------------------------------


def guesses(*rates: float, limit: int = 9, **costs: Any) -> Candidate:
    """By position; the last one from there on."""
    return Candidate(limit=limit, rate=lambda at: rates[min(at, len(rates) - 1)], **costs)


def test_a_depth_is_the_one_that_yields_most_for_its_cost() -> None:
    """By hand: tokens per cost of each depth."""
    curve = CostCurve({1: 1.0, 2: 1.2, 4: 2.0, 8: 6.0}, rewind=0.1, fixed=True)
    rates = (0.5, 0.7, 0.9, 0.8, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4)
    for first in range(5):
        expected = alive = 1.0
        best, wanted, gained = 1.03, 0, 0.0
        for depth in range(1, 7):
            alive *= rates[first + depth - 1]
            expected += alive
            cost = curve.cost(1 + depth) * (1 + 0.1 * (1 - alive))
            if expected / cost > best:
                best, wanted, gained = expected / cost, depth, expected - cost
        plan = with_budget(curve, 100.0).plan(guesses(*rates[first:], limit=6))
        assert plan.depth == wanted, first
        assert plan.size == 1 + wanted
        assert plan.gain == pytest.approx(gained)
        assert plan.expected_speedup == pytest.approx(best if wanted else 1.0)


def test_a_window_must_promise_three_percent_more() -> None:
    for rate, depth in ((0.02, 0), (0.0295, 0), (0.031, 1), (0.05, 1)):
        assert Gate(CostCurve.free()).plan(guesses(rate, limit=1)).depth == depth


def with_budget(curve: CostCurve, steps: float) -> Gate:
    gate = Gate(curve)
    gate.budget.steps = steps
    return gate


def test_no_more_is_bet_than_is_there() -> None:
    curve = CostCurve({1: 1.0, 5: 3.0}, rewind=0.5, fixed=True)
    # A window of two wrong ids costs 2 * 1.5 and yields what a step does: 2 steps lost.
    for steps, depth in ((1.9, 1), (2.1, 2), (1.2, 0)):
        gate = with_budget(curve, steps)
        assert gate.plan(guesses(0.99, limit=2)).depth == depth, steps


def test_drafts_are_paid_for() -> None:
    free = with_budget(CostCurve.free(), 100.0)
    plan = free.plan(guesses(0.9, limit=3, draft_cost=0.1))
    assert plan.depth == 3
    assert plan.gain == pytest.approx(1 + 0.9 + 0.81 + 0.729 - 1.3)
    assert free.plan(guesses(0.9, limit=3, round_cost=0.3)).gain == pytest.approx(plan.gain)
    dear = free.plan(guesses(0.9, limit=3, draft_cost=1.0))
    assert (dear.depth, dear.gain) == (0, 0.0)
    # What drafts cost, and telling, may be lost, so it must be there too.
    for steps, telling, depth in ((1.1, 0.0, 2), (1.6, 0.0, 3), (1.6, 0.5, 2)):
        gate = with_budget(CostCurve.free(), steps)
        drafts = guesses(0.99, limit=3, draft_cost=0.5, catch_up=telling, proven=3)
        assert gate.plan(drafts).depth == depth


def test_a_gate_that_is_off_drafts_all_that_there_is() -> None:
    plan = Gate(CostCurve.linear(), enabled=False).plan(guesses(0.0))
    assert (plan.depth, plan.gain, plan.expected_speedup) == (9, 9.0, math.inf)
    assert Gate(CostCurve.linear()).enabled


def closed(steps: float) -> Gate:
    """By a curve that says that nothing pays, and may be wrong."""
    gate = Gate(stepping(10.0, points={1: 1.0, 2: 2.3, 8: 8.7}))
    gate.budget.steps = steps
    return gate


def test_an_offer_that_is_likely_is_tried_when_that_is_due_and_may_be_lost() -> None:
    likely, unlikely = guesses(0.9, limit=7), guesses(0.4, limit=7)
    assert closed(9.0).plan_offer(likely, due=False).depth == 0
    plan = closed(9.0).plan_offer(likely, due=True)
    assert (plan.depth, plan.gain, plan.explores) == (7, 0.0, True)
    assert closed(1.9).plan_offer(likely, due=True).depth == 1
    assert closed(0.9).plan_offer(likely, due=True).depth == 0  # not even one could be lost
    assert closed(9.0).plan_offer(unlikely, due=True).depth == 0  # plain steps tell of those


def test_one_draft_is_tried_where_costs_are_known() -> None:
    drafts = guesses(0.3, limit=4, draft_cost=0.1)
    assert closed(9.0).exploration(drafts, costs=True).depth == 4
    assert closed(9.0).exploration(drafts, costs=False).depth == 1
    assert closed(0.9).exploration(drafts, costs=False).depth == 0


def test_before_a_step_was_timed_nothing_is_bet() -> None:
    gate = Gate(CostCurve({1: 1.0, 8: 1.1}))
    assert gate.plan(guesses(0.9)).depth == 0
    gate.curve.observe(1, 10.0)
    assert gate.plan(guesses(0.9)).depth == 0
    timed(gate.curve, 10.0)
    assert gate.plan(guesses(0.9)).depth > 0


def test_after_many_windows_a_few_plain_steps_are_timed() -> None:
    gate = Gate(stepping(10.0))
    gate.curve.windows = RETIME - 1
    assert not gate.recalibrates
    gate.curve.windows = RETIME
    due = []
    for _ in range(5):
        due.append(gate.recalibrates)
        gate.stepped()
    assert due == [True] * 3 + [False] * 2
    gate.curve.windows = RETIME
    gate.curve.observe(1, 10.0)  # one was timed anyway
    assert not gate.recalibrates
