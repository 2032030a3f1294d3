"""No offer is lost: a source may offer a span once, at any time; every offer is accounted for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlxfill import Policy, Proposal
from mlxfill.policy.cost import CostCurve
from mlxfill_testing import Guest, Script, ScriptedSource, engine_with, plain, shared_model

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mlxfill import Request

PROMPT = [7, 30, 9, 11, 4]
COUNT = 40
TRUTH = [*PROMPT, *plain(shared_model("llama"), PROMPT, COUNT + 20).tokens]
GATES: dict[str, dict[str, Any]] = {
    "off": {},
    "free": {"gate": True, "curve": CostCurve.free()},
}


class Once:
    """Offers what follows each of some places of the reply, there and never again."""

    def __init__(self, places: Sequence[int], length: int = 8, wrong_from: int = 1 << 20) -> None:
        self.places, self.length, self.wrong_from = set(places), length, wrong_from
        self.said = 0
        self.offers: list[Proposal] = []
        self.outcomes: list[tuple[Proposal, int]] = []

    def observe(self, ids: Sequence[int]) -> None:
        self.said += len(ids)

    def propose(self, view: Any) -> Proposal | None:
        due = {place for place in self.places if place <= self.said}
        if not due:
            return None
        self.places -= due
        at = view.length
        ids = [
            token if i < self.wrong_from else (token + 1) % 64
            for i, token in enumerate(TRUTH[at : at + self.length])
        ]
        self.offers.append(Proposal(tuple(ids), Policy.VERIFY, "once"))
        return self.offers[-1]

    def resolved(self, proposal: Proposal, accepted: int) -> None:
        self.outcomes.append((proposal, accepted))


def answered(
    *make: Callable[[Request], Any], rows: int = 1, count: int = COUNT, **options: Any
) -> tuple[list[Any], Guest]:
    guest = Guest(sources=list(make))
    asked: dict[str, Any] = {"prompt": PROMPT, "max_tokens": count, "eos_token_ids": ()}
    with engine_with(shared_model("llama"), guest, **options) as engine:
        results = engine.generate_batch([asked] * rows) if rows > 1 else [engine.generate(**asked)]
    for result in results:
        assert result.tokens == TRUTH[len(PROMPT) : len(PROMPT) + count]
        assert result.faults == []
    return results, guest


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("place", [1, 2, 5, 12])
def test_a_span_that_is_offered_once_is_used(gate: str, rows: int, place: int) -> None:
    """Whether a token is in flight when it comes, or not."""
    results, guest = answered(lambda _: Once([place]), rows=rows, **GATES[gate])
    for result, source in zip(results, guest.seated, strict=True):
        spec = result.stats.spec
        assert (spec["offers"], spec["judged"], spec["left_out"]) == (1, 1, 0)
        assert spec["windows"] >= 1
        assert source.outcomes == [(source.offers[0], 8)]


@pytest.mark.parametrize("rows", [1, 3])
def test_every_offer_is_judged_where_the_gate_is_off(rows: int) -> None:
    results, guest = answered(lambda _: Once(range(1, 40, 4), 3), rows=rows)
    for result, source in zip(results, guest.seated, strict=True):
        spec = result.stats.spec
        assert spec["offers"] == len(source.offers) > 5
        assert spec["windows"] > 0
        assert spec["judged"] + spec["dropped"]["short"] == spec["offers"]
        assert spec["left_out"] == 0


def test_an_offer_that_goes_wrong_is_told_how_far_it_came() -> None:
    for wrong_from in range(5):
        source = Once([3], wrong_from=wrong_from)
        answered(lambda _, source=source: source)  # type: ignore[misc]
        assert source.outcomes == [(source.offers[0], wrong_from)]


def test_what_a_closed_gate_left_out_is_carried_on_until_it_opens() -> None:
    """The first ids come true in plain steps; after some of them a window pays."""
    curve = CostCurve({1: 1.0, 2: 1.3, 8: 2.0, 32: 4.0}, fixed=True)
    (result,), guest = answered(lambda _: Once([2], 30), gate=True, curve=curve)
    (source,) = guest.seated
    assert result.stats.spec["offers"] == 1
    assert result.stats.spec["windows"] > 0
    assert source.outcomes == [(source.offers[0], 30)]


def test_a_source_of_higher_priority_is_heard_before_the_rest_of_an_offer() -> None:
    first, second = Once([6], 4), Once([3], 20)
    (result,), _ = answered(lambda _: first, lambda _: second, gate=True, curve=CostCurve.linear())
    assert first.outcomes == [(first.offers[0], 4)]
    assert second.outcomes == [(second.offers[0], 3)]
    assert result.stats.spec["offers"] == 2


@settings(max_examples=40, deadline=None)
@given(
    accuracies=st.lists(st.floats(0, 1), min_size=1, max_size=3),
    chance=st.sampled_from([0.3, 1.0]),
    seed=st.integers(0, 99),
    curve=st.sampled_from([None, CostCurve.free(), CostCurve.linear()]),
    drafter=st.booleans(),
    rows=st.sampled_from([1, 2]),
    count=st.integers(1, 30),
)
def test_every_offer_is_judged_left_out_or_dropped_for_a_reason(  # noqa: PLR0913, PLR0917
    accuracies: list[float],
    chance: float,
    seed: int,
    curve: CostCurve | None,
    drafter: bool,
    rows: int,
    count: int,
) -> None:
    def source(accuracy: float) -> Callable[[Request], ScriptedSource]:
        script = Script(TRUTH, accuracy, seed)
        return lambda request: ScriptedSource(request=request, script=script, chance=chance)

    guest = Guest(sources=[source(each) for each in accuracies])
    if drafter:
        guest.drafter = Guest.drafting(TRUTH, 0.5).drafter
    options: dict[str, Any] = {} if curve is None else {"gate": True, "curve": curve}
    asked = {"prompt": PROMPT, "max_tokens": count, "eos_token_ids": ()}
    with engine_with(shared_model("llama"), guest, **options) as engine:
        results = engine.generate_batch([asked] * rows)
    for at, result in enumerate(results):
        spec = result.stats.spec
        assert spec["offers"] == spec["judged"] + spec["left_out"] + sum(spec["dropped"].values())
        seated = guest.seated[at * len(accuracies) : (at + 1) * len(accuracies)]
        made = sum(len(each.offered) for each in seated)
        told = sum(len(each.outcomes) for each in seated)
        own = spec.get("rounds", 0)
        assert told == made
        assert spec["offers"] - own >= made
        if curve is None:
            assert spec["left_out"] == 0
