"""The drafter of an engine: how it is found, what is learnt about it over requests."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import pytest

from mlxfill import DrafterError, DraftKind, Policy, Sampling, hookimpl
from mlxfill.model.target import Target
from mlxfill.policy.acceptance import AcceptanceStats
from mlxfill.policy.calibration import measured_cost
from mlxfill.policy.cost import CostCurve
from mlxfill.policy.drafter import FIRST_DRAFTS, Drafter
from mlxfill.policy.plan import Gate
from mlxfill.sampling import Chooser
from mlxfill_testing import Guest, Script, ScriptedDrafter, engine_with, shared_model

if TYPE_CHECKING:
    from pathlib import Path

    from mlxfill.contracts import TargetView

PROMPT = [5, 9, 17, 4, 33, 21]


class Heads:
    """A kind of drafter whose artifact is a folder with a file ``head``; notes what it loads."""

    def __init__(self, provider: Any = None, error: Exception | None = None) -> None:
        self.provider, self.error = provider or ScriptedDrafter(script=Script([], 0.0)), error
        self.loaded: list[Path | None] = []

    def kind(self, origin: str) -> DraftKind:
        def detect(folder: Path) -> bool:
            return (folder / "head").is_file()

        return DraftKind("heads", origin, detect, self.load, subfolder="mtp")

    def load(self, artifact: Path | None, _target: TargetView, _settings: object) -> Any:
        self.loaded.append(artifact)
        if self.error is not None:
            raise self.error
        return self.provider


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """The folder of a model that brings its own head."""
    (tmp_path / "mtp").mkdir()
    (tmp_path / "mtp" / "head").touch()
    return tmp_path


# --- a head that came with the model ---------------------------------------------------


def engine_at(folder: Path, heads: Heads, **options: Any) -> Any:
    guest = Guest(drafter=heads)  # type: ignore[arg-type]
    return engine_with(shared_model("llama"), guest, path=folder, draft_kind=None, **options)


def test_a_head_beside_the_model_is_found_by_itself(release: Path) -> None:
    heads = Heads()
    with engine_at(release, heads) as engine:
        spec = engine.generate(PROMPT, max_tokens=8, temperature=1.0, seed=1).stats.spec
    assert heads.loaded == [release / "mtp"]
    assert spec["drafter"] == "guest"


def test_no_head_is_looked_for_where_none_lies(tmp_path: Path) -> None:
    heads = Heads()
    with engine_at(tmp_path, heads) as engine:
        assert "drafter" not in engine.generate(PROMPT, max_tokens=3).stats.spec
    assert heads.loaded == []


def test_a_head_is_left_alone_where_no_drafts_are_wanted(release: Path) -> None:
    heads = Heads()
    with engine_at(release, heads, num_draft_tokens=0):
        assert heads.loaded == []


def test_a_named_drafter_goes_before_the_head_of_the_model(release: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "head").touch()
    heads = Heads()
    with engine_at(release, heads, draft=other):
        assert heads.loaded == [other]


def test_a_broken_head_that_nobody_asked_for_is_reported_and_left_out(release: Path) -> None:
    heads = Heads(error=DrafterError("the head lacks the tensor 'fc.weight'"))
    with engine_at(release, heads) as engine:
        assert [fault.message for fault in engine.faults] == [
            "the head lacks the tensor 'fc.weight'; going on without"
        ]
        assert len(engine.generate(PROMPT, max_tokens=3).tokens) == 3


def test_a_broken_head_that_was_asked_for_stops_the_start(release: Path) -> None:
    heads = Heads(error=RuntimeError("no\nmemory"))
    with pytest.raises(DrafterError, match=r"'guest' failed to load .*: RuntimeError: no memory"):
        engine_at(release, heads, draft=release / "mtp")


class Broken(Guest):
    """Fails when it is asked what it can draft with."""

    @hookimpl
    def mlxfill_draft_kinds(self) -> list[DraftKind]:
        raise LookupError(self.name)


def test_what_fails_while_a_drafter_is_looked_for_is_in_the_faults_of_each_result() -> None:
    guests = Broken(name="broken"), Guest.drafting(PROMPT, 0.0)
    with engine_with(shared_model("llama"), *guests) as engine:
        for _ in range(2):
            found = engine.generate(PROMPT, max_tokens=3).faults
            assert [(each.plugin, each.where) for each in found] == [
                ("broken", "mlxfill_draft_kinds")
            ]


# --- what is learnt ---------------------------------------------------------------------


def drafter(weights_bytes: int) -> Drafter:
    provider = ScriptedDrafter(script=Script([], 0.0), weights_bytes=weights_bytes)
    return Drafter("guest", provider.kind(), provider)


def test_a_trained_drafter_that_is_never_right_is_named_once() -> None:
    wrong = drafter(1)
    warnings = [wrong.first_draft(hit=False, vocab_size=64) for _ in range(3 * FIRST_DRAFTS)]
    assert [at for at, text in enumerate(warnings) if text] == [FIRST_DRAFTS - 1]
    assert "'scripted'" in warnings[FIRST_DRAFTS - 1]
    assert f"0 of {FIRST_DRAFTS}" in warnings[FIRST_DRAFTS - 1]


@pytest.mark.parametrize("weights_bytes", [0, 1])
def test_a_drafter_that_is_sometimes_right_or_has_no_weights_is_not(weights_bytes: int) -> None:
    other = drafter(weights_bytes)
    hits = [weights_bytes == 1 and i % 8 == 0 for i in range(3 * FIRST_DRAFTS)]
    assert not any(other.first_draft(hit, vocab_size=64) for hit in hits)


def test_the_warning_reaches_the_result() -> None:
    model = shared_model("llama")
    wrong = ScriptedDrafter(script=Script([], 0.0), weights_bytes=1)
    with engine_with(model, guest := Guest(drafter=wrong)) as engine:
        results = [
            engine.generate(PROMPT, max_tokens=40, eos_token_ids=[], temperature=1.0, seed=seed)
            for seed in range(4)
        ]
    faults = [fault for result in results for fault in result.faults]
    assert [fault.plugin for fault in faults] == [guest.name]
    assert "no more than by chance" in faults[0].message


def test_what_is_learnt_of_one_position_says_nothing_of_others() -> None:
    acceptance = AcceptanceStats.trained()
    assert [acceptance.rate(at) for at in (0, 2, 9)] == pytest.approx([0.9, 0.9, 0.9])
    for _ in range(12):
        acceptance.record(0, hit=True)
    for _ in range(12):
        acceptance.record(1, hit=False)
    assert acceptance.rate(0) > 0.9
    assert acceptance.rate(1) < 0.2


def test_a_drafter_is_remembered_from_request_to_request() -> None:
    model = shared_model("llama")
    with engine_with(model) as plain:
        truth = plain.generate(PROMPT, max_tokens=40, eos_token_ids=[]).tokens
    wrong = ScriptedDrafter(script=Script([*PROMPT, *truth], 0.0), weights_bytes=1)
    curve = CostCurve({1: 1.0, 2: 1.1, 8: 1.4}, fixed=True)
    with engine_with(model, Guest(drafter=wrong), gate=True, curve=curve) as engine:
        rounds = [
            sum(
                engine.generate(PROMPT, max_tokens=40, eos_token_ids=[]).stats.spec[
                    "drafted_by_position"
                ][:1]
            )
            for _ in range(3)
        ]
    assert rounds == sorted(rounds, reverse=True)
    assert rounds[-1] <= 2  # the tries of a drafter at rest


def test_a_drafter_that_earned_it_drafts_from_the_first_token_on() -> None:
    model = shared_model("llama")
    with engine_with(model) as plain:
        truth = plain.generate(PROMPT, max_tokens=40, eos_token_ids=[]).tokens
    right = ScriptedDrafter(script=Script([*PROMPT, *truth], 1.0), weights_bytes=1)
    curve = CostCurve({1: 1.0, 2: 1.2, 8: 2.0}, rewind=0.4, fixed=True)
    with engine_with(model, Guest(drafter=right), gate=True, curve=curve) as engine:
        engine.generate(PROMPT, max_tokens=40, eos_token_ids=[])
        stats = engine.generate(PROMPT, max_tokens=40, eos_token_ids=[]).stats
    assert stats.spec["rejected"] == 0
    assert stats.rounds[0] == 1
    assert min(stats.rounds[1:-1]) > 1


def test_telling_is_on_trust_once_and_then_paid_by_what_was_won() -> None:
    trained = drafter(1)
    trained.step_ms = 10.0
    assert trained.affords(10**6)
    trained.told(100, 500.0)
    assert (trained.fund, trained.owes()) == (0.0, 0.0)
    trained.won(3.0)
    trained.told(100, 50.0)
    assert (trained.fund, trained.owes()) == (0.0, 2.0)
    assert trained.owes() == 0.0
    trained.won(-9.0)
    assert trained.fund == 0.0


def test_a_drafter_that_is_only_tried_is_not_told_on_trust() -> None:
    trained, gate = drafter(1), Gate(stepping(10.0))
    trained.cost = 0.2
    assert not trained.exploration(gate, 2, 0).depth  # it was not idle long enough
    trained.retry.idle_tokens = 16
    assert trained.exploration(gate, 2, 0).depth
    assert trained.fund == 0.0
    assert drafter(0).fund == 0.0


def test_a_drafter_that_does_not_pay_is_tried_ever_more_rarely() -> None:
    trained = drafter(1)
    tries = []
    for token in range(9000):
        trained.retry.idle_tokens += 1
        if trained.retry.due:
            tries.append(token)
            trained.drafts()
            trained.won(-0.5)
    pauses = [b - a for a, b in pairwise(tries)]
    assert pauses == sorted(pauses)
    assert pauses[-1] == 4096
    trained.won(2.0)
    assert trained.retry.retry_after < pauses[0]


def stepping(ms: float) -> CostCurve:
    """Windows that are nearly free, and steps of ``ms``."""
    curve = CostCurve({1: 1.0, 2: 1.1, 4: 1.2})
    for _ in range(9):
        curve.observe(1, ms)
    return curve


def test_rounds_that_cost_more_than_they_yield_are_not_made_again() -> None:
    curve, trained = stepping(2.0), drafter(1)
    trained.cost, trained.proven = 0.1, 2

    def depth() -> int:
        return Gate(curve).plan(trained.candidate(2, curve)).depth

    assert depth() == 2
    for ms in (90.0, 3.0, 2.9, 80.0, 3.0):  # the machine was busy
        trained.timed(2, ms)
        assert depth() == 2
    for _ in range(9):
        trained.timed(2, 7.0)
    assert depth() == 0
    for _ in range(9):
        curve.observe(1, 4.0)  # it became slower: what is told in steps is right again
    assert depth() == 2


def test_what_a_draft_costs_is_told_by_the_newest_rounds() -> None:
    curve, trained = stepping(1.0), drafter(1)
    trained.cost = 0.2
    assert trained.draft_cost(curve) == 0.2
    for depth, ms in ((1, 1.4), (3, 2.1), (1, 1.4)):  # 0.3 a draft beyond the window
        trained.timed(depth, ms)
    assert trained.draft_cost(curve) == pytest.approx(0.3)
    for _ in range(9):
        trained.timed(2, 1.15 + 2 * 0.1)
    assert trained.draft_cost(curve) == pytest.approx(0.1)
    assert trained.draft_cost(curve, stall=0.1) == pytest.approx(0.05)


def test_taking_back_is_no_cost_of_drafts() -> None:
    curve, trained = stepping(1.0), drafter(1)
    curve.rewind, trained.cost = 0.5, 0.2
    for _ in range(9):
        trained.timed(1, 1.3 + 0.5 * 1.1, rewound=True)
    assert trained.draft_cost(curve) == pytest.approx(0.2)


def test_after_the_longest_rest_its_cost_is_found_out_anew() -> None:
    curve, trained = stepping(1.0), drafter(1)
    trained.cost = 0.2
    for _ in range(3):
        trained.timed(2, 9.0)
    assert trained.proven == 2
    trained.retry.idle_tokens += 16
    trained.drafts()
    assert trained.draft_cost(curve) > 1
    trained.retry.idle_tokens += 4096
    trained.drafts()
    assert not trained.proven
    assert trained.draft_cost(curve) == 0.2


@pytest.mark.parametrize(("cost_of_two", "drafts"), [(1.9, False), (1.5, True)])
def test_a_drafter_is_not_tried_where_even_perfect_drafts_hardly_pay(
    cost_of_two: float, *, drafts: bool
) -> None:
    model = shared_model("llama")
    with engine_with(model) as plain:
        truth = plain.generate(PROMPT, max_tokens=60, eos_token_ids=[]).tokens
    right = ScriptedDrafter(script=Script([*PROMPT, *truth], 1.0), weights_bytes=1)
    curve = CostCurve({1: 1.0, 2: cost_of_two}, fixed=True)
    with engine_with(model, Guest(drafter=right), gate=True, curve=curve) as engine:
        assert engine.drafter is not None
        engine.drafter.cost = 0.0
        result = engine.generate(PROMPT, max_tokens=60, eos_token_ids=[])
    assert result.tokens == truth
    assert (result.stats.spec["rounds"] > 0) == drafts


@pytest.mark.parametrize("weights_bytes", [0, 1])
def test_a_drafter_with_weights_rests_over_requests(weights_bytes: int) -> None:
    each = drafter(weights_bytes)
    for _ in range(5):
        each.retry.idle_tokens += each.retry.retry_after
        each.drafts()
        each.won(-0.5)
    retry_after = each.retry.retry_after
    each.open()
    assert (each.retry.retry_after == retry_after) == (weights_bytes > 0)


class Clock:
    """Seconds that pass when someone says so."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class Ticking(Target):
    """A target whose every forward takes a second."""

    clock: Clock

    def forward(self, *args: Any, **kwargs: Any) -> mx.array:
        if hasattr(self, "clock"):
            self.clock.now += 1.0
        return super().forward(*args, **kwargs)


class SlowRows:
    """Takes three seconds for each draft."""

    aux_layers = (0,)

    def __init__(self, target: Ticking) -> None:
        self.target = target
        self.closed = False

    def prefill(self, tokens: mx.array, context: mx.array) -> None:
        assert context.shape == (*tokens.shape, self.target.hidden_size)

    def draft(self, _pending: object, depth: int, _positions: object) -> mx.array:
        self.target.clock.now += 3.0 * depth
        return mx.ones((1, depth), mx.int32)

    def commit(self, accepted: list[list[int]], context: mx.array) -> None:
        assert context.shape[1] == len(accepted[0])

    def close(self) -> None:
        self.closed = True


def test_the_cost_of_a_draft_is_measured_against_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    with Ticking(shared_model("qwen3")) as target:
        target.clock = Clock()
        monkeypatch.setattr(time, "perf_counter", target.clock)
        rows = SlowRows(target)

        class Slow(ScriptedDrafter):
            def open(self, *_: object) -> Any:
                return rows

        cost = measured_cost(target, Slow(script=Script([], 0.0)), 2, mx.default_stream(mx.cpu))
    assert cost == pytest.approx(3.0)
    assert rows.closed


# --- telemetry ---------------------------------------------------------------------------


@pytest.mark.parametrize("on_device", [False, True])
def test_the_counters_of_a_drafter_add_up(*, on_device: bool) -> None:
    model = shared_model("llama")
    with engine_with(model) as plain:
        truth = plain.generate(PROMPT, max_tokens=40, eos_token_ids=[]).tokens
    script = Script([*PROMPT, *truth], 0.8)
    guest = Guest(drafter=ScriptedDrafter(script=script, on_device=on_device, chance=0.8))
    with engine_with(model, guest) as engine:
        stats = engine.generate(PROMPT, max_tokens=40, eos_token_ids=[]).stats
    spec, lengths = stats.spec, stats.spec["acceptance_lengths"]
    assert spec["rounds"] == len(lengths) > 0
    assert spec["drafted_by_position"][0] == spec["rounds"]
    assert sum(spec["drafted_by_position"]) == spec["drafted"]
    assert sum(spec["accepted_by_position"]) == spec["accepted"] == sum(lengths)
    assert spec["accepted"] + spec["rejected"] == spec["drafted"]
    assert stats.generated_tokens + 1 >= stats.target_forwards + spec["forwards_saved"]
    assert "phase_ms" not in spec


@pytest.mark.parametrize("on_device", [False, True])
def test_phases_are_timed_on_demand_and_change_no_text(*, on_device: bool) -> None:
    model = shared_model("qwen3_5")
    with engine_with(model) as plain:
        truth = plain.generate(PROMPT, max_tokens=30, eos_token_ids=[]).tokens
    drafter = ScriptedDrafter(script=Script([*PROMPT, *truth], 0.6), on_device=on_device)
    with engine_with(model, Guest(drafter=drafter)) as engine:
        result = engine.generate(PROMPT, max_tokens=30, eos_token_ids=[], phase_times=True)
    assert result.tokens == truth
    times = result.stats.spec["phase_ms"]
    assert list(times) == ["draft", "verify", "sample", "commit"]
    assert min(times.values()) > 0


def test_phases_of_asserted_spans_are_timed_from_their_own_beginning() -> None:
    model = shared_model("llama")
    with engine_with(model) as plain:
        truth = [*PROMPT, *plain.generate(PROMPT, max_tokens=30, eos_token_ids=[]).tokens]
    sure = Guest.offering(truth, 1.0, policy=Policy.ASSERT)
    with engine_with(model, sure, trusted=[sure.name]) as engine:
        result = engine.generate(PROMPT, max_tokens=30, eos_token_ids=[], phase_times=True)
    assert result.stats.fill["events"] > 0
    assert sum(result.stats.spec["phase_ms"].values()) <= result.stats.decode_ms


# --- sampling -----------------------------------------------------------------------------


def test_evolved_sampling_keeps_the_keys() -> None:
    chooser = Chooser(Sampling(temperature=0.8, top_k=5, seed=11))
    logits = mx.random.normal((4, 64), key=mx.random.key(3))
    same = chooser.evolved(top_k=5)
    assert mx.array_equal(same.draw(logits, range(4)), chooser.draw(logits, range(4)))
    greedy = chooser.evolved(temperature=0.0)
    assert mx.array_equal(greedy.draw(logits, range(4)), mx.argmax(logits, axis=-1))
    assert chooser.sampling.temperature == 0.8
