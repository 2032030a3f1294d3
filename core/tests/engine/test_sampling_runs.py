"""Sampling in whole runs: the same seed gives the same tokens, whatever is proposed."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import pytest
from mlx_lm.sample_utils import make_sampler

from draws import SETTINGS, each_setting, generator, ids
from mlxfill_testing import Guest, Script, ScriptedSource, engine_with, shared_model

PROMPT = [7, 9, 11, 30, 7, 9]


def generate(sampling: dict[str, Any], *guests: Guest, **options: Any) -> Any:
    with engine_with(shared_model("llama"), *guests) as engine:
        return engine.generate(PROMPT, max_tokens=24, eos_token_ids=[], **{**sampling, **options})


def guessing(truth: list[int], accuracy: float) -> Guest:
    def make(request: Any) -> ScriptedSource:
        return ScriptedSource(request=request, script=Script([*PROMPT, *truth], accuracy, 9))

    return Guest(sources=[make])


@each_setting
def test_same_seed_same_tokens_with_and_without_windows(settings: dict[str, Any]) -> None:
    plain = generate({"seed": 8, **settings})
    again = generate({"seed": 8, **settings})
    other = generate({"seed": 9, **settings})
    assert plain.tokens == again.tokens
    assert plain.tokens != other.tokens
    for accuracy in (0.0, 0.7, 1.0):
        guest = guessing(plain.tokens, accuracy)
        result = generate({"seed": 8, **settings}, guest)
        assert result.tokens == plain.tokens
        assert result.faults == []
    assert plain.stats.seed == result.stats.seed == 8


@pytest.mark.parametrize(
    "sampler",
    [
        make_sampler(temp=0.8, top_p=0.9),
        make_sampler(temp=1.0, top_k=10, xtc_probability=0.4, xtc_threshold=0.05),
        make_sampler(temp=0.0),
        lambda row: mx.argmin(row, axis=-1),
    ],
    ids=["top_p", "xtc", "greedy", "own"],
)
def test_a_sampler_of_mlx_lm_is_taken_and_stays_lossless(sampler: Any) -> None:
    plain = generate({"seed": 8}, sampler=sampler)
    for accuracy in (0.0, 0.7, 1.0):
        result = generate({"seed": 8}, guessing(plain.tokens, accuracy), sampler=sampler)
        assert result.tokens == plain.tokens
    assert result.stats.target_forwards < plain.stats.target_forwards


def test_a_sampler_that_counts_its_calls_sees_each_position_once() -> None:
    """Drafts that are refused are never shown to a sampler with a memory."""
    seen: list[int] = []

    def sampler(row: mx.array) -> mx.array:
        (choice,) = ids(mx.argmax(row, axis=-1))
        seen.append(choice)
        return mx.array([choice])

    plain = generate({"seed": 8}, sampler=sampler)
    assert seen == plain.tokens
    for accuracy in (0.0, 0.6):
        seen.clear()
        guest = guessing(plain.tokens, accuracy)
        assert generate({"seed": 8}, guest, sampler=sampler).tokens == plain.tokens
        assert seen == plain.tokens


@pytest.mark.parametrize("settings", [{}, *SETTINGS[-2:]], ids=["greedy", "xtc", "xtc-special"])
def test_the_global_generator_is_left_alone(settings: dict[str, Any]) -> None:
    mx.random.seed(77)
    before = generator()
    generate({"seed": 8, **settings})
    assert generator() == before


def test_a_foreign_sampler_leaves_the_global_generator_alone() -> None:
    mx.random.seed(77)
    before = generator()
    generate({"seed": 8}, sampler=make_sampler(temp=0.9, top_p=0.9))
    assert generator() == before


def test_without_a_seed_the_global_one_decides_and_is_reported() -> None:
    results = []
    for _ in range(2):
        mx.random.seed(123)
        results.append(generate({"temperature": 1.0}))
    first, second = results
    assert first.tokens == second.tokens
    assert first.stats.seed == second.stats.seed
    assert generate({"temperature": 1.0, "seed": first.stats.seed}).tokens == first.tokens
    third = generate({"temperature": 1.0})
    assert third.stats.seed != first.stats.seed


def test_one_number_is_drawn_for_a_seed_and_no_more() -> None:
    mx.random.seed(5)
    mx.eval(mx.random.randint(0, 1 << 31, (2,)))
    expected = generator()
    mx.random.seed(5)
    generate({"temperature": 1.0})
    assert generator() == expected
