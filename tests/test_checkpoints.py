"""Stored runs and sessions with the drafters that ship: their state is kept, and used again."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import pytest

import mlxfill
from mlxfill import Checkpoint

PROMPT = [{"role": "user", "content": "List the days of the week, then count to nine."}]
OPTIONS: dict[str, Any] = {"max_tokens": 60, "temperature": 0.6, "seed": 5}
DRAFTERS: dict[str, dict[str, Any]] = {
    "ngram": {"draft_kind": "ngram", "plugins": ["spec-ngram", "model-tiny"]},
    "two-model": {"draft": "tiny-draft", "plugins": ["spec-two-model", "model-tiny"]},
    "mtp": {"draft": "tiny-mtp", "plugins": ["spec-qwen-mtp", "model-tiny"]},
    "dflash": {"draft": "tiny-dflash", "plugins": ["spec-dflash", "model-tiny"]},
}
CONFIG = {"gate": {"enabled": False}}
each_drafter = pytest.mark.parametrize("kind", DRAFTERS)


@pytest.fixture(autouse=True)
def on_the_cpu() -> None:
    mx.set_default_device(mx.cpu)


@pytest.fixture(scope="module")
def whole() -> mlxfill.Result:
    """What plain decoding says."""
    mx.set_default_device(mx.cpu)
    with mlxfill.load("tiny", plugins=["model-tiny"], config=CONFIG) as engine:
        return engine.generate(PROMPT, **OPTIONS)


@each_drafter
def test_a_drafter_goes_on_from_its_own_state(kind: str, whole: mlxfill.Result) -> None:
    left: list[Checkpoint] = []
    with mlxfill.load("tiny", config=CONFIG, **DRAFTERS[kind]) as engine:
        result = engine.generate(PROMPT, on_checkpoint=left.append, checkpoint_every=20, **OPTIONS)
    assert result.tokens == whole.tokens
    for checkpoint in left[:-1]:
        held = checkpoint.arrays["prompt"].size + checkpoint.generated - 1
        assert checkpoint.content["draft"]["processed_tokens"] == held
        with mlxfill.load("tiny", config=CONFIG, **DRAFTERS[kind]) as engine:
            resumed = engine.resume(checkpoint).result()
        assert resumed.tokens == whole.tokens
        assert resumed.faults == []
        # The very drafts of the run that never stopped: the state is the same.  (What a lookup
        # has learnt about its luck is no part of it.)
        for counted in ("drafted", "accepted") if kind != "ngram" else ():
            assert resumed.stats.spec[counted] == result.stats.spec[counted]


@each_drafter
def test_another_drafter_or_none_changes_nothing(kind: str, whole: mlxfill.Result) -> None:
    left: list[Checkpoint] = []
    with mlxfill.load("tiny", config=CONFIG, **DRAFTERS[kind]) as engine:
        engine.generate(PROMPT, on_checkpoint=left.append, checkpoint_every=20, **OPTIONS)
    others = [{"plugins": ["model-tiny"]}, *(d for name, d in DRAFTERS.items() if name != kind)]
    for other in others:
        with mlxfill.load("tiny", config=CONFIG, **other) as engine:
            resumed = engine.resume(left[0]).result()
        assert resumed.tokens == whole.tokens


@each_drafter
def test_the_next_turn_drafts_without_reading_again(kind: str) -> None:
    messages = [
        {"role": "system", "content": "You answer in few words. " * 12},
        {"role": "user", "content": "Count to five."},
    ]
    asked = {**OPTIONS, "session": "s"}
    with mlxfill.load("tiny", config=CONFIG, **DRAFTERS[kind]) as engine:
        first = engine.generate(messages, **asked)
        messages += [
            {"role": "assistant", "content": first.text},
            {"role": "user", "content": "Count to nine."},
        ]
        second = engine.generate(messages, **asked)
    with mlxfill.load("tiny", plugins=["model-tiny"]) as engine:
        assert engine.generate(messages, **OPTIONS).tokens == second.tokens
    assert second.faults == []  # an MTP head without its state would sit this turn out
    assert second.stats.spec["drafted"] > 0
    assert second.stats.prompt_tokens - second.stats.cached_tokens < 90
