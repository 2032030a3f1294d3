"""What a request may ask for beside tokens: log-probabilities, snapshots, caches, a way out."""

from __future__ import annotations

import copy
import threading
from itertools import islice
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import pytest
from mlx_lm.generate import generate_step
from mlx_lm.models.cache import make_prompt_cache

from diaries import Diary
from mlxfill import CacheMismatchError, DrafterError, InputError, PromptCache
from mlxfill_testing import (
    ARCHITECTURES,
    ROUNDED,
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

PROMPT = [7, 30, 9, 30, 11, 4, 19, 33, 2, 40]
COUNT = 16


def prefilled(model: Any, ids: Sequence[int]) -> list[Any]:
    """A cache that holds exactly ``ids``, in one forward."""
    cache = make_prompt_cache(model)
    if ids:
        mx.eval(model(mx.array([list(ids)]), cache=cache), [entry.state for entry in cache])
    return cache


def guests(truth: Sequence[int]) -> list[Guest]:
    return [
        Guest(),
        Guest.offering(truth, 1.0),
        Guest.offering(truth, 0.6),
        Guest.drafting(truth, 1.0),
        Guest.drafting(truth, 0.6),
    ]


# --- log-probabilities -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["llama", "qwen3_5", "gemma2"])
def test_log_probabilities_are_those_of_mlx_lm(name: str) -> None:
    """Full vocabulary, after processors; in a burst as in single steps."""
    model = shared_model(name)

    def processor(tokens: mx.array, logits: mx.array) -> mx.array:
        logits[:, tokens[-2:]] -= 1.5
        return logits

    both: list[list[Any]] = [[], [processor]]
    for processors in both:
        steps = generate_step(
            mx.array(PROMPT), model, max_tokens=COUNT, logits_processors=processors
        )
        theirs = [(int(token), logprobs) for token, logprobs in steps]
        truth = [*PROMPT, *(token for token, _ in theirs)]
        for guest in guests(truth):
            with engine_with(model, guest) as engine:
                run = engine.stream(
                    PROMPT,
                    max_tokens=COUNT,
                    eos_token_ids=(),
                    logprobs=True,
                    top_logprobs=4,
                    logits_processors=processors,
                )
                pieces = [piece for piece in run if piece.token is not None]
                result = run.result()
            for piece, (token, logprobs) in zip(pieces, theirs, strict=True):
                assert piece.token == token
                assert piece.logprobs is not None
                assert mx.array_equal(piece.logprobs, logprobs)
                order: Any = mx.argsort(-logprobs)[:4].tolist()
                assert piece.top_logprobs is not None
                assert [i for i, _ in piece.top_logprobs] == order
                assert [p for _, p in piece.top_logprobs] == [logprobs[i].item() for i in order]
            assert result.logprobs == [logprobs[token].item() for token, logprobs in theirs]
            assert result.top_logprobs == [piece.top_logprobs for piece in pieces]


def test_more_candidates_than_there_are_ids() -> None:
    result = plain(shared_model("llama"), PROMPT, 2, top_logprobs=1000)
    assert result.top_logprobs is not None
    assert [len(top) for top in result.top_logprobs] == [64, 64]
    assert result.logprobs is None


def test_nobody_who_did_not_ask_gets_log_probabilities() -> None:
    with engine_with(shared_model("llama")) as engine:
        pieces = list(engine.stream(PROMPT, max_tokens=3))
    assert all(piece.logprobs is None and piece.top_logprobs is None for piece in pieces)


# --- ways out ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["llama", "qwen3_5", "mamba", "rwkv7"])
@pytest.mark.parametrize("which", range(5))
def test_a_consumer_may_leave_at_any_token_and_the_caches_tell_the_truth(
    name: str, which: int
) -> None:
    model = shared_model(name)
    truth = [*PROMPT, *plain(model, PROMPT, COUNT).tokens]
    with engine_with(model, guests(truth)[which]) as engine:
        for taken in range(1, COUNT + 1):
            caches = make_prompt_cache(model)
            run = engine.stream(PROMPT, max_tokens=COUNT, eos_token_ids=(), prompt_cache=caches)
            tokens = [piece.token for piece in islice(run, taken)]
            run.close()
            assert tokens == truth[len(PROMPT) : len(PROMPT) + taken]
            held = list(run.stats.cache_tokens)
            assert held == truth[: len(held)]
            assert len(held) >= len(PROMPT) + taken - 1
            assert differences(caches, prefilled(model, held)) == []


def test_a_run_that_is_dropped_unread_costs_nothing() -> None:
    caches = make_prompt_cache(shared_model("llama"))
    with engine_with(shared_model("llama")) as engine:
        run = engine.stream(PROMPT, prompt_cache=caches)
        run.close()
        assert list(run) == []
    assert all(entry.empty() for entry in caches)
    assert run.stats.cache_tokens == ()


def test_two_runs_of_one_engine_may_be_read_in_turns() -> None:
    model = shared_model("qwen3_5")
    other = [t + 1 for t in PROMPT]
    expected = plain(model, PROMPT, COUNT).tokens, plain(model, other, COUNT).tokens
    with engine_with(model, Guest.offering([*PROMPT, *expected[0]], 0.7)) as engine:
        runs = [engine.stream(ids, max_tokens=COUNT, eos_token_ids=()) for ids in (PROMPT, other)]
        pieces = list(zip(*runs, strict=True))
    assert [a.token for a, _ in pieces[:-1]] == expected[0]
    assert [b.token for _, b in pieces[:-1]] == expected[1]


@pytest.mark.parametrize("after", [0, 1, 2, 5])
@pytest.mark.parametrize("which", range(5))
def test_a_cancel_ends_at_the_next_boundary(after: int, which: int) -> None:
    model = shared_model("llama")
    truth = [*PROMPT, *plain(model, PROMPT, COUNT).tokens]
    cancel = threading.Event()
    tokens = []
    with engine_with(model, guests(truth)[which]) as engine:
        run = engine.stream(PROMPT, max_tokens=COUNT, eos_token_ids=(), cancel=cancel)
        if after == 0:
            cancel.set()
        for piece in run:
            if piece.token is not None:
                tokens.append(piece.token)
            if len(tokens) == after:
                cancel.set()
        result = run.result()
    assert result.finish_reason == "cancelled"
    assert tokens == result.tokens == truth[len(PROMPT) : len(PROMPT) + len(tokens)]
    assert after <= len(tokens) <= after + 9
    assert len(tokens) < COUNT


def test_a_cancel_during_the_prompt_leaves_the_caches_at_a_chunk() -> None:
    model = shared_model("llama")
    caches, cancel = make_prompt_cache(model), threading.Event()
    seen: list[int] = []

    def progress(done: int, _: int) -> None:
        seen.append(done)
        if done >= 4:
            cancel.set()

    with engine_with(model) as engine:
        result = engine.generate(
            PROMPT,
            prefill_step_size=2,
            on_prefill_progress=progress,
            cancel=cancel,
            prompt_cache=caches,
        )
    assert (result.finish_reason, result.tokens) == ("cancelled", [])
    assert seen == [0, 2, 4]
    assert result.stats.cache_tokens == tuple(PROMPT[:4])
    assert differences(caches, prefilled(model, PROMPT[:4])) == []


@pytest.mark.parametrize("step", [1, 3, 4, 100])
def test_progress_goes_from_nothing_to_the_whole_prompt(step: int) -> None:
    seen: list[tuple[int, int]] = []
    plain(
        shared_model("llama"),
        PROMPT,
        2,
        prefill_step_size=step,
        on_prefill_progress=lambda *at: seen.append(at),
    )
    theirs: list[tuple[int, int]] = []
    steps = generate_step(
        mx.array(PROMPT),
        shared_model("llama"),
        max_tokens=2,
        prefill_step_size=step,
        prompt_progress_callback=lambda *at: theirs.append(at),
    )
    list(steps)
    assert seen == theirs


# --- snapshots ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(ARCHITECTURES))
def test_a_snapshot_holds_exactly_what_it_says(name: str) -> None:
    """Called once, before anything more is written; later tokens do not reach into it."""
    model = shared_model(name)
    for at in (None, 1, 4, len(PROMPT) - 1):
        taken: list[PromptCache] = []
        result = plain(
            model, PROMPT, 6, snapshot_at=at, on_prefill_done=taken.append, prefill_step_size=3
        )
        (snapshot,) = taken
        assert snapshot.tokens == tuple(PROMPT[: len(PROMPT) - 1 if at is None else at])
        again = plain(model, PROMPT, 6, cache=snapshot)
        assert again.stats.cached_tokens == len(snapshot.tokens)
        if name not in ROUNDED:
            assert differences(snapshot.caches, prefilled(model, snapshot.tokens)) == []
            assert again.tokens == result.tokens


def test_a_snapshot_is_taken_once_with_drafts_and_chunks() -> None:
    model = shared_model("llama")
    truth = [*PROMPT, *plain(model, PROMPT, COUNT).tokens]
    for guest in guests(truth):
        taken: list[PromptCache] = []
        plugged(model, guest, PROMPT, COUNT, on_prefill_done=taken.append, prefill_step_size=4)
        assert [snapshot.tokens for snapshot in taken] == [tuple(PROMPT[:-1])]
        assert differences(taken[0].caches, prefilled(model, PROMPT[:-1])) == []


def test_a_snapshot_of_a_prompt_of_one_token_is_empty() -> None:
    taken: list[PromptCache] = []
    plain(shared_model("llama"), [5], 3, on_prefill_done=taken.append)
    assert [snapshot.tokens for snapshot in taken] == [()]


def test_a_snapshot_before_the_end_of_a_prewarmed_cache_is_refused() -> None:
    model = shared_model("llama")
    warm = PromptCache(PROMPT[:6], prefilled(model, PROMPT[:6]))
    with pytest.raises(InputError, match=r"snapshot_at.*6"):
        plain(model, PROMPT, 3, cache=warm, snapshot_at=4, on_prefill_done=print)


# --- prewarmed caches ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(ARCHITECTURES))
def test_a_prewarmed_cache_stays_the_callers(name: str) -> None:
    model = shared_model(name)
    expected = plain(model, PROMPT, COUNT)
    caches = prefilled(model, PROMPT[:7])
    before = copy.deepcopy(caches)
    for guest in (Guest(), Guest.offering([*PROMPT, *expected.tokens], 0.7)):
        result = plugged(model, guest, PROMPT, COUNT, cache=PromptCache(PROMPT[:7], caches))
        assert result.stats.cached_tokens == 7
        assert result.stats.prompt_tokens == len(PROMPT)
        assert differences(caches, before) == []
        if name not in ROUNDED:
            assert result.tokens == expected.tokens


def test_a_bare_list_of_caches_is_counted() -> None:
    model = shared_model("qwen3_5")
    expected = plain(model, PROMPT, COUNT)
    result = plain(model, PROMPT, COUNT, cache=prefilled(model, PROMPT[:5]))
    assert result.tokens == expected.tokens
    assert result.stats.cached_tokens == 5


def test_a_result_can_be_continued_from_its_cache() -> None:
    model = shared_model("qwen3_5")
    truth = [*PROMPT, *plain(model, PROMPT, COUNT).tokens]
    for guest in guests(truth):
        first = plugged(model, guest, PROMPT, 9, keep_cache=True)
        assert first.cache is not None
        assert first.cache.tokens == first.stats.cache_tokens
        prompt = [*PROMPT, *first.tokens]
        second = plain(model, prompt, COUNT - 9, cache=first.cache)
        assert [*first.tokens, *second.tokens] == truth[len(PROMPT) :]
        assert second.stats.cached_tokens == len(first.cache.tokens)


def test_a_cache_that_is_handed_out_holds_what_it_says() -> None:
    model = shared_model("llama")
    with engine_with(model) as engine:
        audited = engine.audit(PROMPT, max_tokens=4, keep_cache=True).result.cache
        assert audited is not None
        longer = [*audited.tokens, 5, 6]
        unasked = engine.generate(longer, cache=audited, max_tokens=0, keep_cache=True).cache
        assert unasked is not None
        assert unasked.tokens == audited.tokens
        assert engine.generate(longer, cache=unasked).stats.cached_tokens == len(audited.tokens)


def mismatches(model: Any) -> dict[str, tuple[Any, str]]:
    other = [*PROMPT[:3], 63, *PROMPT[4:6]]
    longer = [*PROMPT, 5, 6]
    half = prefilled(model, PROMPT[:6])
    strange = prefilled(shared_model("mamba"), PROMPT[:6])
    return {
        "other tokens": (PromptCache(other, prefilled(model, other)), "from position 3 on"),
        "more tokens": (PromptCache(longer, prefilled(model, longer)), "12 tokens.*10"),
        "a longer list": (prefilled(model, longer), "12 tokens.*10"),
        "too few entries": (PromptCache(PROMPT[:6], half[:2]), "2 entries.*4"),
        "entries of another model": (PromptCache(PROMPT[:6], [*strange, *strange]), "ArraysCache"),
        "too few tokens named": (PromptCache(PROMPT[:4], half), "holds 6 tokens, not 4"),
        "too many tokens named": (PromptCache(PROMPT[:8], half), "holds 6 tokens, not 8"),
        "nothing in it": (PromptCache(PROMPT[:6], make_prompt_cache(model)), "holds 0 tokens"),
    }


@pytest.mark.parametrize("kind", sorted(mismatches(shared_model("llama"))))
def test_a_cache_that_is_not_the_beginning_of_the_prompt_is_refused(kind: str) -> None:
    given, named = mismatches(shared_model("llama"))[kind]
    with pytest.raises(CacheMismatchError, match=named) as caught:
        plain(shared_model("llama"), PROMPT, 4, cache=given)
    assert "\n" not in str(caught.value)
    with (
        engine_with(shared_model("llama")) as engine,
        pytest.raises(CacheMismatchError, match=named),
    ):
        engine.check(PROMPT, cache=given)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (PromptCache((), []), "give this one as cache"),
        ([], "0 entries.*needs 4"),
        (make_prompt_cache(shared_model("llama"))[:3], "3 entries.*needs 4"),
        (make_prompt_cache(shared_model("mamba"))[:1] * 4, "ArraysCache"),
    ],
)
def test_an_mlx_lm_cache_of_another_model_is_refused(given: Any, named: str) -> None:
    with pytest.raises((CacheMismatchError, InputError), match=named):
        plain(shared_model("llama"), PROMPT, 4, prompt_cache=given)


@pytest.mark.parametrize("option", [{"keep_cache": True}, {"on_prefill_done": print}])
def test_caches_with_unnamed_tokens_are_not_handed_out(option: dict[str, Any]) -> None:
    model = shared_model("llama")
    assert plain(model, PROMPT, 4, prompt_cache=make_prompt_cache(model), **option).tokens
    with pytest.raises(InputError, match="give cache, not prompt_cache"):
        plain(model, PROMPT, 4, prompt_cache=prefilled(model, [3, 1, 4]), **option)


def test_a_list_that_cannot_be_counted_is_refused() -> None:
    model = shared_model("mamba")
    with pytest.raises(CacheMismatchError, match=r"give mlxfill\.PromptCache"):
        plain(model, PROMPT, 4, cache=prefilled(model, PROMPT[:6]))


def test_both_kinds_of_cache_at_once_are_refused() -> None:
    model = shared_model("llama")
    with pytest.raises(InputError, match=r"either cache .* or prompt_cache"):
        plain(
            model,
            PROMPT,
            4,
            cache=prefilled(model, PROMPT[:6]),
            prompt_cache=make_prompt_cache(model),
        )


def test_caches_of_the_caller_that_cannot_go_back_switch_verifying_off() -> None:
    """The model's own caches can be taken back, these cannot: asked for each request."""
    model = shared_model("llama")
    expected = plain(model, PROMPT, COUNT).tokens
    with engine_with(model, Guest.offering([*PROMPT, *expected], 1.0)) as engine:
        result = engine.generate(
            PROMPT,
            max_tokens=COUNT,
            eos_token_ids=(),
            prompt_cache=[Diary() for _ in model.layers],
        )
        assert result.tokens == expected
        assert result.stats.spec["verify_unsupported"] > 0
        usual = engine.generate(PROMPT, max_tokens=COUNT, eos_token_ids=())
        assert usual.tokens == expected
        assert usual.stats.spec["accepted"] > 0
    guest = Guest.drafting([*PROMPT, *expected], 1.0)
    with pytest.raises(DrafterError, match="Diary"):
        plugged(model, guest, PROMPT, COUNT, prompt_cache=[Diary() for _ in model.layers])


# --- input embeddings ----------------------------------------------------------------------------


@pytest.mark.parametrize("which", range(5))
def test_input_embeddings_take_the_place_of_the_prompts_own(which: int) -> None:
    model = shared_model("qwen3_5")
    rows = model.language_model.model.embed_tokens(mx.array(PROMPT[::-1]))
    expected = reference_tokens(model, PROMPT, COUNT, input_embeddings=rows)
    assert expected != plain(model, PROMPT, COUNT).tokens
    assert expected == plain(model, PROMPT[::-1], COUNT).tokens
    for step in (3, 2048):
        guest = guests([*PROMPT, *expected])[which]
        result = plugged(model, guest, PROMPT, COUNT, input_embeddings=rows, prefill_step_size=step)
        assert result.tokens == expected


def test_input_embeddings_alone() -> None:
    model = shared_model("llama")
    rows = model.model.embed_tokens(mx.array(PROMPT))
    expected = reference_tokens(model, [], COUNT, input_embeddings=rows)
    assert expected == reference_tokens(model, PROMPT, COUNT)
    result = plain(model, [], COUNT, input_embeddings=rows)
    assert result.tokens == expected
    assert result.stats.prompt_tokens == len(PROMPT)


def test_input_embeddings_go_on_after_a_prewarmed_cache() -> None:
    """The rows of the tokens that the cache holds are left out, not those at the end."""
    model = shared_model("llama")
    rows = model.model.embed_tokens(mx.array(PROMPT))
    warm = PromptCache(PROMPT[:4], prefilled(model, PROMPT[:4]))
    result = plain(model, PROMPT, COUNT, input_embeddings=rows, cache=warm)
    assert result.tokens == plain(model, PROMPT, COUNT).tokens


def test_input_embeddings_after_an_mlx_lm_cache() -> None:
    model = shared_model("llama")
    rows = model.model.embed_tokens(mx.array(PROMPT[4:]))
    expected = plain(model, PROMPT, COUNT).tokens
    for ids in (PROMPT[4:], []):
        caches = prefilled(model, PROMPT[:4])
        result = plain(model, ids, COUNT, input_embeddings=rows, prompt_cache=caches)
        assert result.tokens == expected


def test_a_model_that_takes_no_embeddings_says_so() -> None:
    rows = mx.zeros((3, 64))
    with pytest.raises(InputError, match="takes no input_embeddings"):
        plain(shared_model("mamba"), [1, 2, 3], 2, input_embeddings=rows)
    with pytest.raises(InputError, match="3 rows, the prompt 2 ids"):
        plain(shared_model("llama"), [1, 2], 2, input_embeddings=rows)
