"""When a drafter is told of tokens that others chose: not before it drafts, and if that pays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from mlxfill.policy.cost import CostCurve
from mlxfill_testing import Guest, Script, ScriptedDrafter, engine_with, plain, shared_model

if TYPE_CHECKING:
    from mlxfill.policy.drafter import Drafter

PROMPT = [5, 9, 17, 4, 33, 21]
LONG = [2 + at % 50 for at in range(2100)]
STATES = (0,)


def scripted(truth: list[int], right: float, **options: Any) -> ScriptedDrafter:
    return ScriptedDrafter(script=Script(truth, right), weights_bytes=1, **options)


def drafter(provider: ScriptedDrafter) -> Drafter:
    with engine_with(shared_model("llama"), Guest(drafter=provider)) as engine:
        assert engine.drafter is not None
        return engine.drafter


@pytest.mark.parametrize("states", [(), STATES])
@pytest.mark.parametrize("mode", ["full", "tail-split"])
@pytest.mark.parametrize(("pays", "curve"), [(True, CostCurve.free()), (False, CostCurve.linear())])
def test_a_drafter_hears_of_a_prompt_only_when_it_is_to_draft(
    states: tuple[int, ...], mode: Any, curve: CostCurve, *, pays: bool
) -> None:
    model = shared_model("llama")
    truth = plain(model, PROMPT, 30).tokens
    provider = scripted([*PROMPT, *truth], 1.0, aux_layers=states, prefill_mode=mode)
    with engine_with(model, Guest(drafter=provider), gate=True, curve=curve) as engine:
        result = engine.generate(PROMPT, max_tokens=30, eos_token_ids=())
    assert result.tokens == truth
    assert result.faults == []
    rows = provider.opened[-1]  # those before it were timed
    assert bool(rows.rounds) == pays
    assert rows.known[: len(PROMPT)] == (PROMPT if pays else [])


def test_telling_is_weighed_against_what_rounds_save_in_a_reply() -> None:
    each = drafter(scripted(PROMPT, 1.0))
    each.step_ms, each.expected_speedup = 2.0, 1.5
    assert each.pays(10**6)  # nobody knows what it costs
    each.told(4, 400.0)  # so few say nothing of many
    assert each.pays(10**6)
    each.told(100, 9000.0)  # the first one also builds kernels
    assert each.pays(10**6)
    for _ in range(2):
        each.told(100, 100.0)  # half a step a token
    # 128 tokens at 1.5 a step take 85 steps: 43 may go on telling, but for a margin.
    assert each.pays(70)
    assert not each.pays(90)
    assert not each.pays(70, 40)  # so few may come
    for _ in range(8):
        each.replied(1280)
    assert each.pays(700)
    assert not each.pays(900)
    each.expected_speedup = 1.0
    assert not each.pays(1)


@pytest.mark.parametrize("asked", [False, True])
def test_states_of_a_long_prompt_are_not_kept_for_a_drafter_that_does_not_pay(
    *, asked: bool
) -> None:
    """It sits the request out, which is no fault; one that nobody asked yet has a chance."""
    model = shared_model("llama")
    truth = plain(model, LONG, 20).tokens
    provider = scripted([*LONG, *truth], 1.0, aux_layers=STATES, prefill_mode="full")
    closed = CostCurve.linear()
    with engine_with(model, Guest(drafter=provider), gate=True, curve=closed) as engine:
        if asked:
            engine.generate(PROMPT, max_tokens=3, eos_token_ids=())
        result = engine.generate(LONG, max_tokens=20, eos_token_ids=())
    assert result.tokens == truth
    assert result.faults == []
    assert result.stats.spec["rounds"] == 0
    assert bool(provider.opened[-1].known) != asked


@pytest.mark.parametrize("states", [(), STATES])
def test_the_next_turn_need_not_read_the_session_again_for_a_drafter_that_does_not_pay(
    states: tuple[int, ...],
) -> None:
    model = shared_model("llama")
    first = plain(model, PROMPT, 20).tokens
    second = [*PROMPT, *first, 7, 11]
    truth = plain(model, second, 20).tokens
    provider = scripted([*second, *truth], 1.0, aux_layers=states)
    with engine_with(model, Guest(drafter=provider), gate=True, curve=CostCurve.linear()) as engine:
        engine.generate(PROMPT, max_tokens=20, eos_token_ids=(), session="talk")
        result = engine.generate(second, max_tokens=20, eos_token_ids=(), session="talk")
    assert result.tokens == truth
    assert result.faults == []
    assert result.stats.cached_tokens >= len(PROMPT) + len(first) - 1
    assert [rows.known for rows in provider.opened] == [[], []]


def test_a_drafter_that_pays_finds_its_state_in_the_next_turn() -> None:
    model = shared_model("llama")
    first = plain(model, PROMPT, 20).tokens
    second = [*PROMPT, *first, 7, 11]
    truth = plain(model, second, 20).tokens
    provider = scripted([*second, *truth], 1.0, aux_layers=STATES)
    with engine_with(model, Guest(drafter=provider), gate=True, curve=CostCurve.free()) as engine:
        engine.generate(PROMPT, max_tokens=20, eos_token_ids=(), session="talk")
        result = engine.generate(second, max_tokens=20, eos_token_ids=(), session="talk")
    assert result.tokens == truth
    assert result.stats.cached_tokens >= len(PROMPT) + len(first) - 1
    assert result.stats.spec["accepted"] > 0


@pytest.mark.parametrize(("chance", "whole"), [(1.0, True), (0.6, False)])
def test_a_drafter_that_cannot_hear_of_tokens_of_others_sits_out_from_the_first_on(
    chance: float, *, whole: bool
) -> None:
    """It is never told of one: not a fault, and the text is right."""
    model = shared_model("llama")
    truth = plain(model, PROMPT, 40).tokens
    provider = scripted(
        [*PROMPT, *truth],
        1.0,
        chance=chance,
        prefill_mode="full",
        supports_external_tokens=False,
    )
    with engine_with(model, Guest(drafter=provider)) as engine:
        result = engine.generate(PROMPT, max_tokens=40, eos_token_ids=())
    assert result.tokens == truth
    assert result.faults == []
    known, rounds = provider.opened[-1].known, provider.opened[-1].rounds
    drafted = sum(len(each) + 1 for each in rounds)
    assert (len(known) >= len(PROMPT) + 39) == whole
    assert len(known) <= len(PROMPT) + drafted


def resting(provider: ScriptedDrafter, replies: int, tokens: int) -> tuple[Drafter, list[int]]:
    """Some replies beside a drafter that never pays, and how often each asked it."""
    asked = []
    guest, curve = Guest(drafter=provider), CostCurve.linear()
    with engine_with(shared_model("llama"), guest, gate=True, curve=curve) as engine:
        assert engine.drafter is not None
        for _ in range(replies):
            result = engine.generate(PROMPT, max_tokens=tokens, eos_token_ids=())
            assert result.stats.spec["rounds"] == 0
            asked.append(result.stats.spec["left_out"])
        return engine.drafter, asked


def test_a_drafter_at_rest_is_asked_ever_more_rarely() -> None:
    each, asked = resting(scripted(PROMPT, 0.0), replies=4, tokens=60)
    assert asked == sorted(asked, reverse=True)
    assert asked[-1] < asked[0] / 2
    assert each.retry.idle_tokens == 4 * 59  # the first token comes with the prompt


def test_steps_of_short_replies_count_as_rest() -> None:
    each, _ = resting(scripted(PROMPT, 0.0), replies=20, tokens=4)
    assert each.retry.idle_tokens == 20 * 3


def test_replies_are_as_long_as_they_were_however_rarely_a_drafter_is_told() -> None:
    each, _ = resting(scripted(PROMPT, 0.0), replies=9, tokens=33)
    each.step_ms = 1.0
    for _ in range(3):
        each.told(100, 100.0)
    assert each.catch_up_share(33) == 1.0
