"""Asserted spans: appended unread, at one forward, with everything else as it would be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mlx.core as mx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlx_lm.models.cache import QuantizedKVCache, make_prompt_cache

from mlxfill import Policy, Proposal
from mlxfill_testing import (
    ARCHITECTURES,
    ROUNDED,
    VOCAB,
    Guest,
    ScriptedSource,
    differences,
    engine_with,
    plain,
    shared_model,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PROMPT = [7, 30, 9, 30, 11, 4]
FORCED = (50, 51, 52, 53, 54)
QUOTE = 20
COUNT = settings().max_examples


class Spans(ScriptedSource):
    """Asserts given spans at given numbers of emitted tokens."""

    spans: Mapping[int, Proposal]

    def propose(self, view: Any) -> Proposal | None:
        return self.spans.get(view.length - len(self.request.prompt_ids))


def asserting(spans: Mapping[int, Sequence[int]], **more: Any) -> Guest:
    """A guest that asserts ``spans`` by the number of tokens that stand before each."""
    proposals = {
        at: Proposal(tuple(ids), Policy.ASSERT, "fill", **more) for at, ids in spans.items()
    }

    def make(request: Any) -> Spans:
        source = Spans(request=request, script=None)  # type: ignore[arg-type]
        source.spans = proposals
        return source

    return Guest(name="sure", sources=[make])


def filled(model: Any, guest: Guest, count: int, *, trusted: bool = True, **options: Any) -> Any:
    options = {"max_tokens": count, "eos_token_ids": (), **options}
    with engine_with(model, guest, trusted=["sure"] if trusted else []) as engine:
        result = engine.generate(PROMPT, **options)
    assert result.faults == []
    assert sum(result.stats.rounds) == result.stats.generated_tokens == len(result.tokens)
    return result


def follows(model: Any, result: Any, upto: int, **options: Any) -> None:
    """After its first ``upto`` tokens the result is what the model itself goes on with."""
    rest = len(result.tokens) - upto
    after = plain(model, [*PROMPT, *result.tokens[:upto]], rest, **options)
    assert result.tokens[upto:] == after.tokens


@pytest.mark.parametrize("at", [1, 2, 5])
@pytest.mark.parametrize("name", ["llama", "qwen3_5", "gemma3_text", "mamba2", "falcon_h1"])
def test_a_trusted_span_enters_as_it_is(name: str, at: int) -> None:
    model = shared_model(name)
    result = filled(model, asserting({at: FORCED}), at + 12, keep_cache=True)
    expected = plain(model, PROMPT, at).tokens
    assert result.tokens[: at + 5] == [*expected, *FORCED]
    assert result.origins == ["sampled"] * at + ["fill"] * 5 + ["sampled"] * 7
    assert result.stats.fill["events"] == 1
    assert result.stats.fill["injected"] == 5
    if name not in ROUNDED:
        follows(model, result, at + 5)
        fresh = make_prompt_cache(model)
        mx.eval(model(mx.array([list(result.cache.tokens)]), cache=fresh))
        assert differences(result.cache.caches, fresh) == []


def test_a_span_costs_one_forward() -> None:
    model = shared_model("llama")
    result = filled(model, asserting({1: FORCED}), 12)
    # 12 tokens: 7 sampled ones, the first of them by the prompt's last forward.
    assert result.stats.target_forwards == plain(model, PROMPT, 12).stats.target_forwards - 5


def test_a_sample_that_was_in_flight_is_dropped_and_counted() -> None:
    """At 1 the pending token joins the span; at 5 a plain step was on its way already."""
    model = shared_model("llama")
    assert filled(model, asserting({1: FORCED}), 12).stats.fill["wasted_samples"] == 0
    assert filled(model, asserting({5: FORCED}), 14).stats.fill["wasted_samples"] == 1


def test_one_span_may_follow_another() -> None:
    model = shared_model("llama")
    result = filled(model, asserting({1: FORCED, 7: FORCED[::-1], 13: (60, 61)}), 20)
    assert tuple(result.tokens[1:6]) == FORCED
    assert tuple(result.tokens[7:12]) == FORCED[::-1]
    assert tuple(result.tokens[13:15]) == (60, 61)
    assert result.stats.fill["events"] == 3
    follows(model, result, 15)


@pytest.mark.parametrize("budget", range(1, 9))
def test_the_budget_cuts_a_span(budget: int) -> None:
    model = shared_model("llama")
    result = filled(model, asserting({1: FORCED}), budget, keep_cache=True)
    first = plain(model, PROMPT, 1).tokens
    whole = [*first, *FORCED]
    if budget == 2:  # one id of the span would fit: it is left to the model
        assert result.tokens == plain(model, PROMPT, 2).tokens
    else:
        assert result.tokens[:6] == whole[:budget]
    assert len(result.tokens) == budget
    assert result.finish_reason == "length"
    fresh = make_prompt_cache(model)
    mx.eval(model(mx.array([list(result.cache.tokens)]), cache=fresh))
    assert differences(result.cache.caches, fresh) == []


def test_the_end_is_never_forced() -> None:
    model = shared_model("llama")
    result = filled(model, asserting({1: (50, 51, 63, 52)}), 10, eos_token_ids=[63])
    assert tuple(result.tokens[1:3]) == (50, 51)
    assert 63 not in result.tokens
    assert filled(model, asserting({1: (50, 63)}), 1, eos_token_ids=[63]).stats.fill["events"] == 0


def test_a_copied_span_ends_at_a_delimiter_or_is_verified() -> None:
    model = shared_model("llama")
    copied: dict[str, Any] = {"delimiters": [QUOTE]}
    cut = asserting({1: (50, QUOTE, 51, 52)}, delimiter_bound=True)
    assert tuple(filled(model, cut, 8, **copied).tokens[1:3]) == (50, QUOTE)
    open_ended = asserting({1: (50, 51, 52, QUOTE)}, delimiter_bound=True)
    result = filled(model, open_ended, 8, max_span=3, **copied)
    assert result.tokens == plain(model, PROMPT, 8).tokens
    assert result.stats.fill["events"] == 0
    assert result.stats.spec["rejected"] > 0
    scaffold = asserting({1: (50, QUOTE, 51, 52)})
    assert tuple(filled(model, scaffold, 8, **copied).tokens[1:5]) == (50, QUOTE, 51, 52)


@pytest.mark.parametrize("options", [{}, {"temperature": 0.9, "seed": 3}], ids=["greedy", "drawn"])
def test_an_assert_of_a_stranger_is_only_verified(options: dict[str, Any]) -> None:
    model = shared_model("qwen3_5")
    expected = plain(model, PROMPT, 16, **options)
    for trusted, more in ((False, {}), (True, {"sources_policy": "verify"})):
        right = {at: expected.tokens[at : at + 4] for at in range(2, 12)}
        guest = asserting({1: FORCED, **right})
        result = filled(model, guest, 16, trusted=trusted, **more, **options)
        assert result.tokens == expected.tokens
        assert result.stats.fill["events"] == 0
        assert result.stats.spec["accepted"] >= 4


@pytest.mark.parametrize("chunk", [1, 2, 3, 4, 100])
@pytest.mark.parametrize("name", ["llama", "qwen3_5", "mamba"])
def test_spans_are_appended_in_chunks(name: str, chunk: int) -> None:
    model = shared_model(name)
    whole = filled(model, asserting({1: FORCED, 9: FORCED}), 20)
    parts = filled(model, asserting({1: FORCED, 9: FORCED}), 20, append_chunk=chunk)
    assert parts.tokens == whole.tokens
    assert parts.stats.target_forwards >= whole.stats.target_forwards


def test_a_span_crosses_the_start_of_quantization() -> None:
    """Plain decoding quantizes after the forward that reaches the start: so must a span."""
    model = shared_model("llama", num_attention_heads=2, num_key_value_heads=1, head_dim=32)
    for start in range(6, 16):
        options: dict[str, Any] = {"kv_bits": 8, "kv_group_size": 32, "quantized_kv_start": start}
        right = plain(model, PROMPT, 24, **options).tokens
        result = filled(model, asserting({2: right[2:10]}), 24, keep_cache=True, **options)
        assert result.tokens == right
        assert result.stats.fill["injected"] == 8
        assert all(isinstance(entry, QuantizedKVCache) for entry in result.cache.caches)


@pytest.mark.parametrize("size", [8, 10, 16])
def test_a_span_crosses_the_wrap_of_a_ring_with_kept_beginning(size: int) -> None:
    model = shared_model("qwen2")
    right = plain(model, PROMPT, 24, max_kv_size=size).tokens
    result = filled(model, asserting({2: right[2:10]}), 24, max_kv_size=size)
    assert result.tokens == right
    assert result.stats.fill["injected"] == 8


def test_processors_see_asserted_ids_as_history() -> None:
    model = shared_model("llama")
    shown: list[tuple[int, ...]] = []

    def recorder(tokens: mx.array, logits: mx.array) -> mx.array:
        ids: Any = tokens.tolist()
        shown.append(tuple(ids))
        return logits

    result = filled(model, asserting({1: FORCED, 8: FORCED}), 16, logits_processors=[recorder])
    whole = [*PROMPT, *result.tokens]
    assert [ids for ids in shown if list(ids) != whole[: len(ids)]] == []
    seen = [len(ids) for ids in shown]
    assert seen == sorted(set(seen))
    assert set(range(len(PROMPT), len(whole))) <= set(seen)


def test_a_penalty_counts_asserted_ids() -> None:
    model = shared_model("llama")
    options: dict[str, Any] = {"repetition_penalty": 1.7}
    result = filled(model, asserting({1: FORCED}), 16, **options)
    follows(model, result, 6, **options)


@settings(max_examples=max(1, COUNT // 8))
@given(
    name=st.sampled_from(sorted(set(ARCHITECTURES) - ROUNDED)),
    options=st.fixed_dictionaries(
        {"temperature": st.sampled_from([0.0, 0.8]), "seed": st.integers(0, 99)},
        optional={
            "repetition_penalty": st.just(1.3),
            "top_p": st.just(0.9),
            "logit_bias": st.just({7: 3.0}),
            "append_chunk": st.sampled_from([0, 1, 3]),
            "prefill_step_size": st.just(2),
        },
    ),
    spans=st.lists(st.tuples(st.integers(0, 4), st.integers(2, 9)), max_size=4),
    budget=st.integers(1, 24),
)
def test_right_spans_change_neither_tokens_nor_log_probabilities(
    name: str, options: dict[str, Any], spans: list[tuple[int, int]], budget: int
) -> None:
    """Spans that hold what the model would have written: everything is as in a plain run."""
    model = shared_model(name)
    right = plain(model, PROMPT, 30, **options).tokens
    placed, at = {}, 1
    for skip, size in spans:
        at += skip
        placed[at] = [t % VOCAB for t in right[at : at + size]]
        at += size
    placed = {at: ids for at, ids in placed.items() if len(ids) > 1}
    scored: dict[str, Any] = {"logprobs": True, "top_logprobs": 3}
    expected = plain(model, PROMPT, budget, **scored, **options)
    result = filled(model, asserting(placed), budget, **scored, **options)
    assert result.tokens == expected.tokens
    assert result.logprobs == expected.logprobs
    assert result.top_logprobs == expected.top_logprobs
    assert result.text == expected.text


@pytest.mark.parametrize("at", [1, 5])
def test_log_probabilities_of_forced_ids_are_those_of_the_window(at: int) -> None:
    """What the model thought of an id that it did not choose: as in scoring the same text."""
    model = shared_model("llama")
    result = filled(model, asserting({at: FORCED}), at + 8, logprobs=True)
    logits = model(mx.array([[*PROMPT, *result.tokens]]))[0]
    scored = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
    for i, token in enumerate(result.tokens):
        expected: Any = scored[len(PROMPT) + i - 1, token].item()
        assert result.logprobs[i] == pytest.approx(expected, abs=1e-5)


def test_a_span_of_many_ids_is_cut_at_the_longest() -> None:
    model = shared_model("llama")
    ids = [(i * 5) % 60 + 3 for i in range(40)]
    result = filled(model, asserting({1: ids}), 50, max_span=16)
    assert result.tokens[1:17] == ids[:16]
    assert result.stats.fill["injected"] == 16


@pytest.mark.parametrize("leave", range(1, 12))
def test_a_consumer_may_leave_inside_a_span(leave: int) -> None:
    """The span is in the caches before its tokens are handed out."""
    model = shared_model("qwen3_5")
    caches = make_prompt_cache(model)
    with engine_with(model, asserting({1: FORCED, 8: FORCED}), trusted=["sure"]) as engine:
        run = engine.stream(PROMPT, max_tokens=20, eos_token_ids=(), prompt_cache=caches)
        taken = [piece.token for _, piece in zip(range(leave), run, strict=False)]
        run.close()
    held = run.stats.cache_tokens
    assert list(held[: len(PROMPT) + leave]) == [*PROMPT, *taken][: len(held)]
    fresh = make_prompt_cache(model)
    mx.eval(model(mx.array([list(held)]), cache=fresh))
    assert differences(caches, fresh) == []
