"""From answers to verdicts and advice, on made-up times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mlxfill
from mlxfill_bench import Answer, Answered, Effect, Measurement, Observed, effects
from mlxfill_bench.advice import advise, best_of
from mlxfill_bench.agreement import Deed
from mlxfill_bench.arms import Parts
from mlxfill_bench.figures import Figures
from mlxfill_bench.report import show_effects

if TYPE_CHECKING:
    from collections.abc import Mapping

ON = ["fill-echo", "fill-strict", "spec-ngram", "serve"]
CONFIG = mlxfill.load_config({"plugins": {"enabled": ON}})


def answer(seconds: float, **changes: Any) -> Answer:
    told: dict[str, Any] = {
        "tokens": (1, 2, 3),
        "forwards": 3,
        "injected": 0,
        "drafted": 4,
        "accepted": 2,
        "offers": 1,
        "left_out": 0,
        "faults": (),
        **changes,
    }
    return Answer(seconds=seconds, deed=Deed((), ""), **told)


def measured_effects(arms: dict[str, Any], *, rounds: int = 4, prompts: int = 3) -> list[Effect]:
    """Arms by name: seconds of an answer where plain takes 1, or an answer."""
    return effects(
        [
            Answered(
                str(prompt),
                1,
                {
                    "plain": [answer(1.0, drafted=0, accepted=0, offers=0)] * rounds,
                    **{
                        name: [a if isinstance(a, Answer) else answer(a)] * rounds
                        for name, a in arms.items()
                    },
                },
            )
            for prompt in range(prompts)
        ],
        [],
    )


def measurement(
    arms: dict[str, Any],
    plugins: Mapping[str, tuple[str, ...]] | None = None,
    drafts: Mapping[str, str] | None = None,
) -> Any:
    found = measured_effects(arms)
    named_drafts = {effect.arm: Parts.of(effect.arm).draft for effect in found}
    named = {effect.arm: tuple(effect.arm.split("+")) for effect in found}
    plain = Figures(1.0, 1.0, 0.0, None, 0, 0, ())
    return Measurement(
        {},
        plain,
        found,
        [],
        {"plain": (), **named, **(plugins or {})},
        {**named_drafts, **(drafts or {})},
    )


@pytest.mark.parametrize(
    ("seconds", "word"),
    [(0.5, "helps"), (0.999, "helps"), (1.0, "harmless"), (1.02, "harmless"), (1.2, "harms")],
)
def test_words_for_sure_times(seconds: float, word: str) -> None:
    (effect,) = measured_effects({"a": seconds})
    assert effect.verdict == word
    assert effect.speed.ratio == pytest.approx(1 / seconds)
    assert effect.speed.low == pytest.approx(effect.speed.high)


def test_what_the_gate_left_out_is_told_beside_the_figures(
    capsys: pytest.CaptureFixture[str],
) -> None:
    shut = answer(1.0, drafted=0, accepted=0, offers=5, left_out=4)
    found = measured_effects({"shut": shut, "open": answer(0.5)})
    said = "the gate left out 48 of 60 offers"
    assert [said in (effect.figures.gate_line or "") for effect in found] == [True, False]
    facts = {
        "model": "m",
        "prompts": 3,
        "rounds": 4,
        "temperature": 0,
        "max_tokens": 9,
        "slack": 0.03,
    }
    show_effects(
        mlxfill.standard_output(), attrs.evolve(measurement({}), facts=facts, effects=found)
    )
    out = capsys.readouterr().out
    assert f"shut: {said}" in out
    assert "open: " not in out


def test_few_or_scattered_times_decide_nothing() -> None:
    (few,) = measured_effects({"a": 0.5}, rounds=1)
    assert few.verdict == "undecided"
    times = [0.5, 2.0, 0.6, 1.8]
    answered = [
        Answered(str(i), 1, {"plain": [answer(1.0)] * 3, "a": [answer(seconds)] * 3})
        for i, seconds in enumerate(times)
    ]
    (scattered,) = effects(answered, [])
    assert scattered.verdict == "undecided"
    assert scattered.speed.low < 1 < scattered.speed.high


@given(seconds=st.floats(0.2, 5.0), slack=st.floats(0, 0.5))
def test_the_word_agrees_with_the_interval(seconds: float, slack: float) -> None:
    answers = {"plain": [answer(1.0)] * 6, "a": [answer(seconds)] * 6}
    (effect,) = effects([Answered("p", 1, answers)], [], slack=slack)
    low, high = effect.speed.low, effect.speed.high
    expected = "helps" if low > 1 else "harmless" if low >= 1 - slack else "harms"
    assert effect.verdict == expected
    assert low <= high


@pytest.mark.parametrize(
    ("seconds", "steps", "word"),
    [
        (0.5, 5.0, "helps"),
        (0.5, 10.0, "harmless"),
        (0.5, 12.0, "harmless"),
        (1.5, 12.0, "harms"),
        (1.5, 10.0, "undecided"),
        (1.5, 5.0, "undecided"),
    ],
)
def test_help_and_harm_need_the_forwards_as_well_as_the_clock(
    seconds: float, steps: float, word: str
) -> None:
    """What other programs do to a clock they do not do to forwards and the cost curve."""
    answers = {"plain": [answer(1.0)] * 6, "a": [answer(seconds)] * 6}
    watched = [Observed("p", 1, "plain", (), (), 10.0), Observed("p", 1, "a", (), (), steps)]
    (effect,) = effects([Answered("p", 1, answers)], watched)
    assert effect.verdict == word
    assert effect.expected == pytest.approx(10 / steps)


def test_faults_come_first_and_other_ids_are_counted() -> None:
    found = measured_effects(
        {
            "a": answer(0.5, faults=("p (propose): x",)),
            "b": answer(0.5, tokens=(1, 2, 4)),
            "c": answer(0.5, tokens=(1, 2, 4), injected=1),
        }
    )
    assert [effect.verdict for effect in found] == ["faulty", "helps", "helps"]
    assert [effect.identical for effect in found] == [3, 0, 0]
    assert [effect.lossless for effect in found] == [True, False, True]
    assert found[1].differing == ("0", "1", "2")
    assert found[0].figures.faults == ("p (propose): x",)


# --- advice ----------------------------------------------------------------------------


def test_the_fastest_that_helps_is_taken_in_its_order() -> None:
    arms = {"fill-echo": 0.9, "spec-ngram": 0.7, "spec-ngram+fill-echo": 0.5, "fill-strict": 1.0}
    advice = advise(measurement(arms), CONFIG)
    assert advice.effect is not None
    assert advice.effect.arm == "spec-ngram+fill-echo"
    assert advice.enabled == ("spec-ngram", "fill-echo", "serve")
    assert advice.changes
    assert advice.lines() == '[plugins]\nenabled = ["spec-ngram", "fill-echo", "serve"]'


def test_what_had_nothing_to_offer_stays_as_it_is() -> None:
    silent = answer(1.0, drafted=0, accepted=0, offers=0)
    advice = advise(measurement({"spec-ngram": 0.5, "fill-strict": silent}), CONFIG)
    assert advice.enabled == tuple(ON)
    assert not advice.changes


def test_the_order_of_what_is_on_is_kept_where_it_is_that_of_the_arm() -> None:
    arms = {"fill-echo": 0.9, "spec-ngram": 0.7, "fill-echo+spec-ngram": 0.5, "fill-strict": 0.9}
    config = mlxfill.load_config({"plugins": {"enabled": ["serve", "fill-echo", "spec-ngram"]}})
    advice = advise(measurement(arms), config)
    assert advice.enabled == ("serve", "fill-echo", "spec-ngram")
    assert not advice.changes


def test_where_nothing_helps_only_harm_goes_off() -> None:
    advice = advise(measurement({"fill-echo": 1.5, "spec-ngram": 1.0}), CONFIG)
    assert advice.effect is None
    assert advice.enabled == ("fill-strict", "spec-ngram", "serve")
    assert not advise(measurement({"spec-ngram": 1.0}), CONFIG).changes


@pytest.mark.parametrize("seconds", [0.9, 1.0, 1.5])
def test_what_proposed_nothing_is_not_judged_by_its_time(seconds: float) -> None:
    silent = answer(seconds, drafted=0, accepted=0, offers=0)
    best = advise(measurement({"fill-echo": silent}), CONFIG)
    assert best.enabled == tuple(ON)
    assert not best.changes


@pytest.mark.parametrize("seconds", [0.5, 1.0, 1.5])
def test_what_proposed_nothing_is_idle_and_not_undecided(seconds: float) -> None:
    measured = measurement({"fill-echo": answer(seconds, drafted=0, accepted=0, offers=0)})
    assert [effect.verdict for effect in measured.effects] == ["idle"]
    (line,) = advise(measured, CONFIG).unproven
    assert line.startswith("fill-echo had nothing to propose")


def test_offers_that_the_gate_left_out_are_proposals() -> None:
    """Seen where forwards of several tokens cost much: 14 offers, none of them judged."""
    offers = answer(1.0, drafted=0, accepted=0, offers=14, left_out=11)
    measured = measurement({"spec-ngram": offers})
    assert all(effect.verdict != "idle" for effect in measured.effects)
    assert not any("had nothing to propose" in line for line in advise(measured, CONFIG).unproven)


def test_where_nothing_is_proven_it_is_said_what_would_settle_it() -> None:
    silent, slow = answer(1.5, drafted=0, accepted=0, offers=0), answer(1.5)
    measured = measurement({"fill-echo": silent, "spec-ngram": slow})
    pairs = zip(measured.effects, (1.3, 0.96), strict=True)
    open_ = [attrs.evolve(e, verdict="undecided", expected=speed) for e, speed in pairs]
    advice = advise(attrs.evolve(measured, effects=open_), CONFIG)
    assert (advice.changes, advice.enabled) == (False, tuple(ON))
    told = "\n".join(advice.unproven)
    assert "fill-echo had nothing to propose: longer prompts" in told
    assert "more rounds (--rounds)" in told
    assert "by forwards and cost curve alone: fill-echo x1.30, spec-ngram x0.96" in told
    assert advise(measurement({"spec-ngram": 0.5}), CONFIG).unproven == ()


@pytest.mark.parametrize("changes", [{"faults": ("x",)}, {"tokens": (9,)}])
def test_arms_that_fail_or_change_the_text_are_not_taken(changes: dict[str, Any]) -> None:
    measured = measurement({"fill-echo": answer(0.1, **changes), "spec-ngram": 0.9})
    best = best_of(measured.effects)
    assert best is not None
    assert best.arm == "spec-ngram"


def test_a_drafter_comes_and_goes() -> None:
    arm = "spec-ngram+draft=small"
    plugins = {arm: ("spec-ngram", "spec-two-model")}
    advice = advise(measurement({arm: 0.5, "spec-ngram": 0.9}, plugins), CONFIG)
    assert advice.draft == "small"
    assert advice.enabled[:2] == ("spec-ngram", "spec-two-model")
    assert advice.lines().startswith('draft = "small"\n')
    config = mlxfill.load_config({"plugins": {"enabled": ON}, "draft": "small"})
    gone = advise(measurement({arm: 1.5, "spec-ngram": 0.9}, plugins), config)
    assert (gone.draft, gone.changes) == (None, True)
    harmful = advise(measurement({"draft=small": 1.5}, {"draft=small": ("x",)}), config)
    assert harmful.draft is None
    undecided = advise(measurement({"draft=small": 1.0}, {"draft=small": ("x",)}), config)
    assert undecided.draft == "small"


def test_a_drafter_without_a_word_of_its_own_goes_with_its_plugin() -> None:
    on = {"plugins": {"enabled": ["spec-two-model", "spec-ngram"]}, "draft": "small"}
    config, drafts = mlxfill.load_config(on), {"spec-two-model": "small"}
    helps = advise(measurement({"spec-two-model": 0.5, "spec-ngram": 0.9}, drafts=drafts), config)
    assert (helps.draft, helps.enabled) == ("small", ("spec-two-model",))
    other = advise(measurement({"spec-two-model": 0.9, "spec-ngram": 0.5}, drafts=drafts), config)
    assert (other.draft, other.enabled) == (None, ("spec-ngram",))
    harms = advise(measurement({"spec-two-model": 1.5}, drafts=drafts), config)
    assert (harms.draft, harms.enabled) == (None, ("spec-ngram",))
    unasked = advise(measurement({"spec-ngram": 0.5}), config)
    assert (unasked.draft, unasked.changes) == ("small", False)
