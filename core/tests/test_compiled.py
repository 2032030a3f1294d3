"""A compiled forward answers what the function answers, and leaves the cache that it leaves."""

from __future__ import annotations

from functools import cache
from typing import Any

import mlx.core as mx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlx_lm.models.cache import make_prompt_cache

from mlxfill import BatchedCache, CompiledForward
from mlxfill.model.compiled import PAGE, capacity
from mlxfill_testing import VOCAB, differences, shared_model

pytestmark = pytest.mark.usefixtures("fused")


def ids(count: int, start: int = 0) -> mx.array:
    return mx.array([[(start + i * 7) % VOCAB for i in range(count)]])


class Counting:
    """A forward that counts how often Python runs it."""

    def __init__(self, name: str) -> None:
        self.model, self.calls = shared_model(name), 0

    def __call__(self, tokens: mx.array, cache: list[Any]) -> Any:
        self.calls += 1
        return self.model(tokens, cache=cache)[:, -1]

    def filled(self, length: int) -> list[Any]:
        held = make_prompt_cache(self.model)
        mx.eval(self.model(ids(length), cache=held))
        return list(held)


@cache
def compiled(name: str) -> tuple[Counting, CompiledForward]:
    """One for all stories: a trace takes longer than a story."""
    function = Counting(name)
    return function, CompiledForward(function)


@cache
def compiled_rows() -> tuple[Counting, CompiledForward]:
    """The same for rows: a graph is compared with the function at its first answer only."""
    function = Counting("llama")
    return function, CompiledForward(function)


@pytest.mark.parametrize("name", ["llama", "qwen3_moe"])
@settings(max_examples=20)
@given(
    start=st.sampled_from([1, 5, PAGE - 2]),
    story=st.lists(st.tuples(st.integers(1, 4), st.integers(0, 3)), min_size=1, max_size=6),
)
def test_any_story_of_forwards_and_trims_ends_alike(
    name: str, start: int, story: list[tuple[int, int]]
) -> None:
    function, forward = compiled(name)
    ours, theirs = function.filled(start), function.filled(start)
    for at, (count, back) in enumerate(story):
        tokens = ids(count, at)
        mine, own = forward(tokens, cache=ours), function(tokens, cache=theirs)
        assert mx.array_equal(mine, own)
        for entry in (*ours, *theirs):
            entry.trim(min(back, count))
    assert differences(ours, theirs) == []


@settings(max_examples=20)
@given(
    starts=st.lists(st.sampled_from([1, 5, PAGE - 2, PAGE + 3]), min_size=2, max_size=4),
    story=st.lists(
        st.tuples(st.integers(1, 4), st.lists(st.integers(0, 4), min_size=4, max_size=4)),
        min_size=1,
        max_size=5,
    ),
    leaves=st.booleans(),
)
def test_rows_of_a_batch_hold_what_they_would_hold_alone(
    starts: list[int], story: list[tuple[int, list[int]]], leaves: bool
) -> None:
    """Whatever each row keeps of a forward, compiled or not; one may leave on the way."""
    function, forward = compiled_rows()
    alone = [function.filled(start) for start in starts]
    batch = BatchedCache()
    batch.join([function.filled(start) for start in starts[:-1]])
    batch.join([function.filled(starts[-1])])
    for at, (count, kept) in enumerate(story):
        tokens = mx.concatenate([ids(count, at + 3 * row) for row in range(len(alone))])
        together = forward(tokens, cache=batch.entries)
        keeps = [min(n, count) for n in kept[: len(alone)]]
        batch.advance([count] * len(alone))
        batch.rewind([count - n for n in keeps])
        for row, held in enumerate(alone):
            own = function(tokens[row : row + 1], cache=held)
            assert mx.allclose(together[row : row + 1], own, atol=1e-4)
            for entry in held:
                entry.trim(count - keeps[row])
        if leaves and at == 0:
            batch.keep(range(1, len(alone)))
            alone = alone[1:]
    assert batch.held == [held[0].offset for held in alone]
    for row, held in enumerate(alone):
        for mine, own in zip(batch.extract(row), held, strict=True):
            for ours, theirs in zip(mine.state[:2], own.state[:2], strict=True):
                assert mx.allclose(ours[:, :, : mine.offset], theirs[:, :, : own.offset], atol=1e-4)


def test_only_plain_filled_caches_are_rows_of_a_batch() -> None:
    fits = {name: BatchedCache.fits(Counting(name).filled(3)) for name in ("llama", "mamba2")}
    assert fits == {"llama": True, "mamba2": False}
    assert not BatchedCache.fits(make_prompt_cache(shared_model("llama")))


def test_a_shape_is_traced_once() -> None:
    function = Counting("llama")
    forward, held = CompiledForward(function), function.filled(5)
    forward(ids(1), cache=held)  # compared with the function itself
    before = function.calls
    for step in range(9):
        forward(ids(1, step), cache=held)
    assert function.calls == before


@pytest.mark.parametrize("name", ["gemma3_text", "qwen3_5", "mamba2"])
def test_other_caches_are_forwarded_as_they_are(name: str) -> None:
    function = Counting(name)
    forward, ours, theirs = CompiledForward(function), function.filled(5), function.filled(5)
    for step in range(3):
        assert mx.array_equal(
            forward(ids(1, step), cache=ours), function(ids(1, step), cache=theirs)
        )
    assert function.calls == 6


def test_an_empty_cache_and_long_inputs_are_forwarded_as_they_are() -> None:
    function = Counting("llama")
    forward, held = CompiledForward(function), make_prompt_cache(function.model)
    forward(ids(1), cache=held)
    forward(ids(20), cache=held)
    assert (function.calls, held[0].offset) == (2, 21)


@pytest.mark.parametrize("what", ["reads the offset", "counts the buffer"])
def test_what_cannot_be_compiled_runs_as_it_is(what: str) -> None:
    counting = Counting("llama")

    def function(tokens: mx.array, cache: list[Any]) -> Any:
        logits = counting(tokens, cache)
        if what == "reads the offset":
            return logits * int(cache[0].offset)
        return logits + cache[0].keys_and_values()[0].shape[2]

    forward, ours, theirs = CompiledForward(function), counting.filled(5), counting.filled(5)
    for step in range(3):
        mine = forward(ids(1, step), cache=ours)
        assert mx.array_equal(mine, function(ids(1, step), cache=theirs))


def test_a_function_that_answers_otherwise_when_compiled_runs_as_it_is() -> None:
    counting = Counting("llama")

    def function(tokens: mx.array, cache: list[Any]) -> Any:
        logits = counting(tokens, cache)
        return logits + (100.0 if isinstance(cache[0].offset, mx.array) else 0.0)

    forward, ours, theirs = CompiledForward(function), counting.filled(5), counting.filled(5)
    for step in range(3):
        mine = forward(ids(1, step), cache=ours)
        assert mx.array_equal(mine, function(ids(1, step), cache=theirs))


@given(st.integers(1, 200_000))
def test_buffers_have_few_sizes_and_little_waste(tokens: int) -> None:
    size = capacity(tokens)
    assert tokens <= size < tokens * 1.25 + PAGE
    assert size % PAGE == 0


def test_a_context_of_any_length_takes_few_graphs() -> None:
    assert len({capacity(tokens) for tokens in range(1, 131_072, 7)}) < 40
