"""Cases 6 to 9: limits, and ends in the middle of a burst.

Conditions under which other systems of this kind went wrong; the numbers are those of the
project's list of cases.
"""

from __future__ import annotations

import threading
from itertools import islice
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import pytest
from mlx_lm.models.cache import make_prompt_cache

from mlxfill import InputError, PromptCache
from mlxfill_testing import (
    Guest,
    differences,
    engine_with,
    plain,
    plugged,
    reference_tokens,
    shared_model,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


PROMPT = [7, 30, 9, 30, 11, 4]


def kept(result: Any) -> Any:
    """The caches that a request left, with the ids that they are said to hold."""
    return result.cache


def truthful(model: Any, held: Sequence[int], caches: list[Any]) -> None:
    """The caches hold exactly these tokens: every array is that of a fresh prefill."""
    fresh = make_prompt_cache(model)
    logits = model(mx.array([list(held)]), cache=fresh)
    mx.eval(logits, [entry.state for entry in fresh])
    assert differences(caches, fresh) == []
    after = mx.array([[5]])
    assert mx.array_equal(model(after, cache=caches), model(after, cache=fresh))


def test_case_06_no_tokens_and_no_limit() -> None:
    """``max_tokens`` 0 is nothing; -1 goes on until something else ends the text."""
    model = shared_model("llama")
    long = reference_tokens(model, PROMPT, 80)
    end = next(t for i, t in enumerate(long) if i > 30 and t not in long[:i])
    at = long.index(end)
    for guest in (
        Guest(),
        Guest.drafting([*PROMPT, *long], 0.8),
        Guest.offering([*PROMPT, *long], 0.8),
    ):
        with engine_with(model, guest) as engine:
            nothing = engine.generate(PROMPT, max_tokens=0)
            assert (nothing.tokens, nothing.text, nothing.finish_reason) == ([], "", "length")
            assert nothing.stats.generated_tokens == 0
            run = engine.stream(PROMPT, max_tokens=-1, eos_token_ids=[end])
            pieces = list(islice(run, 200))  # a run that never ends must fail, not hang
            assert [p.token for p in pieces if p.token is not None] == long[:at]
            assert pieces[-1].finish_reason == "stop"


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_case_06_the_number_of_tokens_is_exact(count: int) -> None:
    """A burst that would overshoot is cut."""
    model = shared_model("llama")
    truth = [*PROMPT, *reference_tokens(model, PROMPT, 20)]
    for guest in (Guest.drafting(truth, 1.0), Guest.offering(truth, 1.0)):
        result = plugged(model, guest, PROMPT, count)
        assert result.tokens == truth[len(PROMPT) : len(PROMPT) + count]
        assert result.finish_reason == "length"


def test_case_06_a_negative_number_of_drafts_is_refused_by_name() -> None:
    model = shared_model("llama")
    guest = Guest.drafting(PROMPT, 1.0)
    with pytest.raises(InputError, match="num_draft_tokens must be 0 or more, not -1"):
        engine_with(model, guest, num_draft_tokens=-1)
    with engine_with(model, guest) as engine, pytest.raises(InputError, match="num_draft_tokens"):
        engine.generate(PROMPT, num_draft_tokens=-1)


def test_case_06_no_drafts_wanted_is_plain_decoding() -> None:
    model = shared_model("llama")
    truth = [*PROMPT, *reference_tokens(model, PROMPT, 10)]
    guest = Guest.drafting(truth, 1.0)
    result = plugged(model, guest, PROMPT, 10, num_draft_tokens=0)
    assert result.tokens == truth[len(PROMPT) :]
    assert result.stats.spec["windows"] == 0
    assert guest.drafter is not None
    assert guest.drafter.opened == []


@pytest.mark.parametrize("length", [1, 2])
@pytest.mark.parametrize("name", ["llama", "qwen3_5", "gemma3_text"])
def test_case_07_the_shortest_prompts(name: str, length: int) -> None:
    """One id leaves nothing to prefill; the first forward is the first step."""
    model, prompt = shared_model(name), PROMPT[:length]
    expected = reference_tokens(model, prompt, 12)
    truth = [*prompt, *expected]
    for guest in (Guest(), Guest.drafting(truth, 0.8, aux_layers=(0,)), Guest.offering(truth, 0.8)):
        result = plugged(model, guest, prompt, 12)
        assert result.tokens == expected
        assert result.faults == []


@pytest.mark.parametrize(
    "prompt", [[], "", mx.array([], dtype=mx.int32)], ids=["ids", "text", "array"]
)
def test_case_07_an_empty_prompt_gets_one_clear_line(prompt: Any) -> None:
    with (
        engine_with(shared_model("llama")) as engine,
        pytest.raises(ValueError, match="the prompt is empty: at least one token is needed"),
    ):
        engine.generate(prompt)


@pytest.mark.parametrize("name", ["llama", "qwen3_5", "gemma3_text", "mamba", "falcon_h1"])
def test_case_07_a_prompt_that_is_in_the_cache_to_its_last_token(name: str) -> None:
    """The model must see a last token again; where a cache cannot give one back it is not used."""
    model = shared_model(name)
    expected = reference_tokens(model, PROMPT, 10)
    caches = make_prompt_cache(model)
    mx.eval(model(mx.array([PROMPT]), cache=caches))
    warm = PromptCache(PROMPT, caches)
    truth = [*PROMPT, *expected]
    for guest in (Guest(), Guest.drafting(truth, 0.8), Guest.offering(truth, 0.8)):
        result = plugged(model, guest, PROMPT, 10, cache=warm)
        assert result.tokens == expected
        assert result.stats.cached_tokens in {0, len(PROMPT) - 1}


def ends(tokens: Sequence[int]) -> list[int]:
    """Places of a run at which its token occurs for the first time: it can be declared EOS."""
    return [i for i, t in enumerate(tokens) if t not in tokens[:i]]


@pytest.mark.parametrize("name", ["llama", "qwen3_5", "mamba"])
def test_case_08_the_end_falls_inside_a_block(name: str) -> None:
    """One of greedy's own ids is the end: nothing after it is yielded or stays in caches."""
    model = shared_model(name)
    long = plain(model, PROMPT, 16).tokens
    places = ends(long)
    assert len(places) > 5
    for at in places:
        end = long[at]
        for guest in (Guest.drafting([*PROMPT, *long], 1.0), Guest.offering([*PROMPT, *long], 1.0)):
            result = plugged(model, guest, PROMPT, 16, eos_token_ids=[end], keep_cache=True)
            assert result.tokens == long[:at]
            assert end not in result.tokens
            assert result.finish_reason == "stop"
            held = list(result.stats.cache_tokens)
            assert held == [*PROMPT, *long][: len(held)]
            assert len(held) <= len(PROMPT) + at + 1  # the end itself may have been forwarded
            truthful(model, held, kept(result).caches)


def test_case_09_counts_agree_when_a_burst_is_cut() -> None:
    """By the budget, a stop string, the end, a cancel, a consumer that leaves."""
    model = shared_model("llama")
    long = plain(model, PROMPT, 24)
    truth = [*PROMPT, *long.tokens]
    cut = set()

    def agree(stats: Any, emitted: int) -> None:
        assert sum(stats.rounds) == stats.generated_tokens == emitted
        assert all(stats.rounds)
        cut.add(stats.rounds[-1])

    for make in (Guest.drafting, Guest.offering):
        for count in range(1, 20):
            with engine_with(model, make(truth, 1.0)) as engine:
                result = engine.generate(PROMPT, max_tokens=count, eos_token_ids=())
                agree(result.stats, count)
                stop = [long.text[count : count + 2]]
                result = engine.generate(PROMPT, max_tokens=24, eos_token_ids=(), stop=stop)
                agree(result.stats, len(result.tokens))
                assert result.finish_reason == "stop"
                run = engine.stream(PROMPT, max_tokens=24, eos_token_ids=())
                for _, _ in zip(range(count), run, strict=False):
                    pass
                run.close()
                agree(run.stats, count)
                cancel = threading.Event()
                emitted = 0
                run = engine.stream(PROMPT, max_tokens=24, eos_token_ids=(), cancel=cancel)
                for piece in run:
                    emitted += piece.token is not None
                    if emitted == count:
                        cancel.set()
                agree(run.stats, emitted)
    assert len(cut) > 3
