"""Measuring what windows cost, once a model and device, and keeping it."""

from __future__ import annotations

import json
import math
import os
from typing import TYPE_CHECKING, Any

import pytest
from platformdirs import user_cache_path

from diaries import diary_model
from mlxfill.model.target import Target
from mlxfill.policy import calibration, constants
from mlxfill.policy.cost import CostCurve
from mlxfill_testing import Guest, engine_with, plain, shared_model

if TYPE_CHECKING:
    from pathlib import Path

PROMPT = [7, 30, 9]


def stored() -> list[Path]:
    return sorted((user_cache_path("mlxfill") / "cost").glob("*"))


@pytest.mark.parametrize("name", ["llama", "qwen3_5", "gemma3_text", "mamba"])
def test_a_measurement_has_a_cost_for_windows_of_every_size(name: str) -> None:
    model = shared_model(name)
    with Target(model) as target:
        curve = calibration.measure(target)
        assert curve.cost(1) == 1.0
        assert 8 in curve.points
        assert all(math.isfinite(c) and c >= 1.0 for c in curve.points.values())
        assert curve.rewind >= 0
        assert all(math.isfinite(curve.cost(n)) for n in range(1, 100))


def test_a_measurement_without_time_still_knows_one_and_eight() -> None:
    with Target(shared_model("llama")) as target:
        assert set(calibration.measure(target, budget_s=0.0).points) == {1, 8}


def counted_forwards(target: Target, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many ids each forward of ``target`` has from now on."""
    sizes: list[int] = []
    plain = target.forward

    def forward(ids: Any, *rest: Any) -> Any:
        sizes.append(ids.shape[1])
        return plain(ids, *rest)

    monkeypatch.setattr(target, "forward", forward)
    return sizes


def test_a_slow_model_is_timed_no_more_than_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the budget, plain steps were timed six times."""
    with Target(shared_model("llama")) as target:
        sizes = counted_forwards(target, monkeypatch)
        calibration.measure(target, budget_s=0.0)
    assert sizes == [calibration.CONTEXT, 1, *[1] * calibration.STEPS, 8]


def test_what_fits_into_the_budget_is_told_by_what_was_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A second an id: after the first pass 31 s are left, then 11 s."""
    now = [0.0]
    with Target(shared_model("llama")) as target:
        sizes = counted_forwards(target, monkeypatch)

        def clock() -> float:
            now[0] += sum(sizes)
            sizes.clear()
            return now[0]

        assert set(calibration.measure(target, 16.5, clock).points) == {1, 2, 8}
        assert set(calibration.measure(target, 37.5, clock).points) == {1, 2, 4, 8, 16}


@pytest.mark.parametrize(("stored_cost", "looks"), [(0.5, 1), (1e9, constants.ENOUGH)])
def test_a_stored_curve_is_looked_at_until_it_may_be_right(
    stored_cost: float, looks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Target(shared_model("llama")) as target:
        sizes = counted_forwards(target, monkeypatch)
        calibration.glance(target, stored_cost)
    assert sizes.count(constants.SIZES[0]) == 1 + looks, "the context has as many ids"


def test_a_model_that_cannot_go_back_keeps_speculation_off() -> None:
    with Target(diary_model()) as target:
        curve = calibration.measure(target)
    assert [curve.cost(n) for n in (1, 2, 9)] == [1.0, 2.0, 9.0]


def test_a_curve_is_measured_once_and_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with Target(shared_model("llama")) as target:
        first = calibration.curve_for(target)
        assert len(stored()) == 1

        def never(*_: object) -> CostCurve:
            raise AssertionError("measured again")

        monkeypatch.setattr(calibration, "measure", never)
        monkeypatch.setattr(calibration, "glance", lambda *_: first.cost(8))
        again = calibration.curve_for(target)
    for n in (1, 8, 20):
        assert again.cost(n) == pytest.approx(first.cost(n), abs=1e-3)


def test_another_model_has_a_curve_of_its_own() -> None:
    for changes in ({}, {"num_hidden_layers": 2}):
        with Target(shared_model("llama", **changes)) as target:
            calibration.curve_for(target)
    assert len(stored()) == 2


def test_a_curve_of_a_busy_machine_is_measured_anew() -> None:
    """Stored windows that no machine makes so dear: the gate would never open again."""
    with Target(shared_model("llama")) as target:
        calibration.store(target, CostCurve({1: 1.0, 8: 500.0, 32: 900.0}))
        curve = calibration.curve_for(target)
        assert curve.cost(8) < 100
        kept = calibration.stored(target)
    assert kept is not None
    assert kept.cost(8) == pytest.approx(curve.cost(8), abs=1e-3)


def test_a_curve_measured_beside_other_programs_is_provisional(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cheap, fresh = CostCurve({1: 1.0, 8: 1.5}), CostCurve({1: 1.0, 8: 3.0})
    monkeypatch.setattr(calibration, "glance", lambda *_: 3.0)
    monkeypatch.setattr(calibration, "measure", lambda *_: fresh)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    with Target(shared_model("llama")) as target:
        for load, kept in ((2.4, cheap), (2.6, None)):
            monkeypatch.setattr(os, "getloadavg", lambda load=load: (load, 0.0, 0.0))
            calibration.store(target, cheap)
            assert calibration.stored(target) == kept
            assert calibration.curve_for(target) == (kept or fresh)
        assert calibration.stored(target) is None, "still busy: provisional again"
        monkeypatch.setattr(os, "getloadavg", lambda: (0.1, 0.0, 0.0))
        calibration.curve_for(target)
        assert calibration.stored(target) == fresh


@pytest.mark.parametrize(("now", "again"), [(2.0, True), (3.5, False), (9.0, False)])
def test_a_stored_curve_is_doubted_when_windows_are_much_cheaper_now(
    now: float, monkeypatch: pytest.MonkeyPatch, *, again: bool
) -> None:
    kept, fresh = CostCurve({1: 1.0, 8: 4.0}), CostCurve({1: 1.0, 8: 2.0})
    monkeypatch.setattr(calibration, "glance", lambda *_: now)
    monkeypatch.setattr(calibration, "measure", lambda *_: fresh)
    with Target(shared_model("llama")) as target:
        calibration.store(target, kept)
        assert calibration.curve_for(target) == (fresh if again else kept)


@pytest.mark.parametrize("name", ["llama", "qwen3_5", "mamba"])
def test_a_glance_leaves_nothing_behind(name: str) -> None:
    with Target(shared_model(name)) as target:
        assert calibration.glance(target) >= 1.0
        assert stored() == []


BROKEN = {
    "empty": "",
    "no json": "{",
    "a list": "[1, 2]",
    "text": '"free"',
    "no points": '{"format": 1, "rewind": 0}',
    "points of text": '{"format": 1, "points": {"1": "x"}, "rewind": 0}',
    "sizes of text": '{"format": 1, "points": {"one": 1.0}, "rewind": 0}',
    "another format": '{"format": 99, "points": {"1": 1.0, "8": 2.0}, "rewind": 0}',
    "no first point": '{"format": 1, "points": {"8": 2.0}, "rewind": 0}',
    "not a number": '{"format": 1, "points": {"1": 1.0, "8": NaN}, "rewind": 0}',
    "endless": '{"format": 1, "points": {"1": 1.0, "8": Infinity}, "rewind": 0}',
    "negative": '{"format": 1, "points": {"1": 1.0, "8": -5.0}, "rewind": 0}',
    "a negative size": '{"format": 1, "points": {"1": 1.0, "-8": 2.0}, "rewind": 0}',
    "a negative rewind": '{"format": 1, "points": {"1": 1.0, "8": 2.0}, "rewind": -1}',
    "provisional": '{"format": 1, "points": {"1": 1.0}, "rewind": 0, "provisional": true}',
    "a null rewind": '{"format": 1, "points": {"1": 1.0, "8": 2.0}, "rewind": null}',
}


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN)
def test_a_broken_file_is_measured_anew(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = CostCurve({1: 1.0, 8: 2.5})
    monkeypatch.setattr(calibration, "measure", lambda *_: honest)
    with Target(shared_model("llama")) as target:
        calibration.store(target, honest)
        (file,) = stored()
        file.write_text(text)
        assert calibration.curve_for(target) == honest
        assert json.loads(file.read_text())["points"] == {"1": 1.0, "8": 2.5}


def test_bytes_that_are_no_text_are_measured_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = CostCurve({1: 1.0, 8: 2.5})
    monkeypatch.setattr(calibration, "measure", lambda *_: honest)
    with Target(shared_model("llama")) as target:
        calibration.store(target, honest)
        stored()[0].write_bytes(b"\xff\xfe\x00")
        assert calibration.curve_for(target) == honest


def test_a_folder_that_cannot_be_written_is_no_reason_to_fail(own_cache_folder: Path) -> None:
    own_cache_folder.write_text("a file where a folder should be")
    with Target(shared_model("llama")) as target:
        assert calibration.curve_for(target).cost(1) == 1.0


def test_an_engine_measures_when_it_first_speculates_and_keeps_what_it_learns() -> None:
    model = shared_model("llama")
    truth = [*PROMPT, *plain(model, PROMPT, 30).tokens]
    assert stored() == []
    with engine_with(model, gate=True) as engine:
        engine.generate(PROMPT, max_tokens=5, eos_token_ids=())
    assert stored() == [], "plain decoding needs no curve"
    with engine_with(model, Guest.offering(truth, 1.0), gate=True) as engine:
        result: Any = engine.generate(PROMPT, max_tokens=30, eos_token_ids=())
        assert result.tokens == truth[len(PROMPT) :]
    assert len(stored()) == 1


def test_an_engine_with_a_given_curve_stores_nothing() -> None:
    model = shared_model("llama")
    guest = Guest.offering(PROMPT, 0.5)
    with engine_with(model, guest, gate=True, curve=CostCurve.free()) as engine:
        engine.generate(PROMPT, max_tokens=5, eos_token_ids=())
    assert stored() == []


def test_a_short_reply_is_not_worth_measuring_and_a_long_one_is() -> None:
    model = shared_model("llama")
    truth = [*PROMPT, *plain(model, PROMPT, 40).tokens]
    with engine_with(model, Guest.offering(truth, 1.0), gate=True) as engine:
        short: Any = engine.generate(PROMPT, max_tokens=16, eos_token_ids=())
        assert short.tokens == truth[len(PROMPT) :][:16]
        assert short.stats.target_forwards == len(short.tokens)
        assert short.stats.spec["left_out"] > 0
        assert stored() == []
        engine.generate(PROMPT, max_tokens=17, eos_token_ids=())
        assert len(stored()) == 1


def test_a_short_reply_speculates_where_costs_are_known_or_do_not_count() -> None:
    model = shared_model("llama")
    truth = [*PROMPT, *plain(model, PROMPT, 8).tokens]
    guest = Guest.offering(truth, 1.0)
    for more in ({"gate": False}, {"gate": True, "curve": CostCurve.free()}):
        with engine_with(model, guest, **more) as engine:
            result: Any = engine.generate(PROMPT, max_tokens=8, eos_token_ids=())
        assert result.tokens == truth[len(PROMPT) :]
        assert result.stats.target_forwards < len(result.tokens)
