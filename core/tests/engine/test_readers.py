"""Prompts that are read together: whoever waits beside a prompt, its reply stays the same."""

from __future__ import annotations

import random
import threading
from functools import cache
from itertools import count
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import pytest
from attrs import frozen
from hypothesis import given, settings
from hypothesis import strategies as st

from mlxfill import PromptCache, RowScheduler
from mlxfill.rows.proof import Readings, prove_readings
from mlxfill_testing import (
    VOCAB,
    Guest,
    Script,
    ScriptedDrafter,
    contents,
    engine_with,
    plain,
    shared_model,
)

if TYPE_CHECKING:
    from mlxfill import Engine

COUNT, BEGUN = 6, 5
LENGTHS = (1, 2, 9, 10, 11, 12, 25, 30, 31, 70)
CHOICES = random.Random(5)
PROMPTS = [[CHOICES.randrange(1, VOCAB) for _ in range(length)] for length in LENGTHS]
MODELS = ("llama", "gemma3_text", "qwen3_5", "falcon_h1", "mamba2", "mamba", "gemma2")
LONG = [1 + i % 60 for i in range(250)]


@cache
def alone(name: str, prompt: int) -> list[int]:
    return plain(shared_model(name), PROMPTS[prompt], COUNT).tokens


@cache
def engine_of(name: str, aux_states: tuple[int, ...] = ()) -> Engine:
    """One engine for all examples; ``aux_states``: with a drafter that asks for these layers."""
    truth = [*PROMPTS[6], *alone(name, 6)]
    mode: Any = "full" if aux_states else "tail-split"
    drafter = ScriptedDrafter(script=Script(truth, 0.6), aux_layers=aux_states, prefill_mode=mode)
    return engine_with(shared_model(name), Guest(drafter=drafter) if aux_states else Guest())


@cache
def begun(name: str, prompt: int) -> PromptCache | None:
    """Caches of the first five tokens of a prompt."""
    if len(PROMPTS[prompt]) <= BEGUN:
        return None
    taken: list[PromptCache] = []
    plain(shared_model(name), PROMPTS[prompt], 1, snapshot_at=BEGUN, on_prefill_done=taken.append)
    return taken[0]


@frozen
class Asked:
    """A request: when it comes, and whether it goes before its end."""

    prompt: int
    step: int
    warm: bool
    arrival: int
    what: str
    going: int


ASKED = st.builds(
    Asked,
    prompt=st.integers(0, len(PROMPTS) - 1),
    step=st.sampled_from([5, 16, 2048]),
    warm=st.booleans(),
    arrival=st.integers(0, 4),
    what=st.sampled_from(["stays", "stays", "stays", "leaves", "cancels"]),
    going=st.integers(0, 4),
)


@settings(max_examples=40)
@given(
    st.sampled_from(MODELS),
    st.sampled_from([(), (0, 1)]),
    st.lists(ASKED, min_size=2, max_size=7),
    st.integers(2, 8),
    st.sampled_from([0.0, 0.4, 5.0]),
)
def test_each_reply_is_that_of_its_prompt_alone(
    name: str, aux_states: tuple[int, ...], requests: list[Asked], max_rows: int, pace: float
) -> None:
    """``pace``: seconds that a layer takes."""
    engine = engine_of(name, aux_states)
    rows = RowScheduler(engine, max_rows=max_rows, clock=count(0, pace).__next__)
    stops = [threading.Event() for _ in requests]
    runs = [
        engine.stream(
            PROMPTS[asked.prompt],
            max_tokens=COUNT,
            eos_token_ids=(),
            prefill_step_size=asked.step,
            cancel=stop,
            # A drafter with aux layers would sit out after tokens that it has not seen.
            cache=begun(name, asked.prompt) if asked.warm and not aux_states else None,
        )
        for asked, stop in zip(requests, stops, strict=True)
    ]
    number = 0
    while len(rows) or any(asked.arrival >= number for asked in requests):
        for run, stop, asked in zip(runs, stops, requests, strict=True):
            if asked.arrival == number:
                rows.add(run)
            if max(asked.arrival, asked.going) == number:
                if asked.what == "leaves":
                    rows.drop(run)
                elif asked.what == "cancels":
                    stop.set()
        rows.round()
        number += 1
    for run, asked in zip(runs, requests, strict=True):
        result, expected = run.result(), alone(name, asked.prompt)
        assert result.faults == []
        if asked.what == "stays":
            assert (result.tokens, result.finish_reason) == (expected, "length")
        assert result.tokens == expected[: len(result.tokens)]
        known, held = [*PROMPTS[asked.prompt], *result.tokens], result.stats.cache_tokens
        assert held == tuple(known[: len(held)])


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("llama", Readings.ANY),
        ("gemma3_text", Readings.ANY),
        ("qwen3_5", Readings.ANY),
        ("falcon_h1", Readings.ANY),
        ("mamba", Readings.EVEN),
        ("rwkv7", Readings.EVEN),
        ("gemma2", Readings.NONE),
        ("llama4", Readings.NONE),
    ],
)
def test_what_a_model_may_read_together_is_tried(name: str, kind: Readings) -> None:
    with engine_with(shared_model(name)) as engine:
        assert prove_readings(engine.target) is kind


def forwards(engine: Engine) -> list[tuple[int, ...]]:
    """The shapes of what the target forwards from here on."""
    shapes: list[tuple[int, ...]] = []
    inner = engine.target.forward

    def counting(ids: Any, *rest: Any, **named: Any) -> Any:
        shapes.append(tuple(ids.shape))
        return inner(ids, *rest, **named)

    engine.no_rows()
    engine.learnt.readings()
    engine.target.forward = counting  # type: ignore[method-assign]
    return shapes


def test_prompts_of_about_the_same_length_share_a_forward() -> None:
    with engine_with(shared_model("llama")) as engine:
        shapes = forwards(engine)
        prompts = [PROMPTS[at] for at in (6, 7, 8, 9)]  # 25, 30, 31 and 70 tokens
        engine.generate_batch([{"prompt": prompt, "max_tokens": 1} for prompt in prompts])
    assert shapes == [(3, 30), (1, 69), (4, 1)]


def test_a_common_forward_is_no_larger_than_the_smallest_chunk_asked_for() -> None:
    with engine_with(shared_model("llama")) as engine:
        shapes = forwards(engine)
        requests = [
            {"prompt": PROMPTS[7], "max_tokens": 1, "prefill_step_size": step}
            for step in (2048, 2048, 60, 40)
        ]
        engine.generate_batch(requests)
    assert shapes == [(2, 29), (1, 29), (1, 29), (4, 1)]


def test_a_short_prompt_does_not_wait_for_a_long_one() -> None:
    with engine_with(shared_model("llama")) as engine:
        rows = RowScheduler(engine)
        options: dict[str, Any] = {"max_tokens": 2, "eos_token_ids": ()}
        first = engine.stream(LONG, **options)
        second = engine.stream(PROMPTS[2], **options)
        rows.add(first)
        rows.add(second)
        assert {run for run, _ in rows.round()} == {second}
        while len(rows):
            rows.round()
        assert first.result().tokens == plain(shared_model("llama"), LONG, 2).tokens


@pytest.fixture
def small_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds of 64 prompt tokens: what takes long prompts otherwise shows with shorter ones."""
    monkeypatch.setattr("mlxfill.batch.prefill_queue.ROUND_TOKENS", 64)


@pytest.mark.usefixtures("small_rounds")
def test_a_long_prompt_is_not_passed_for_ever() -> None:
    """Short ones keep coming: whenever they have read as much as a round may, it reads a chunk."""
    with engine_with(shared_model("llama")) as engine:
        rows = RowScheduler(engine)
        seen: list[int] = []
        options: dict[str, Any] = {"max_tokens": 1, "prefill_step_size": 64}
        long = engine.stream(LONG, on_prefill_progress=lambda done, _: seen.append(done), **options)
        rows.add(long)
        rounds = 0
        while not long.stats.generated_tokens:
            for _ in range(3):
                rows.add(engine.stream(PROMPTS[7], **options))
            rows.round()
            rounds += 1
        rows.close()
    assert seen == [0, 64, 128, 192, 249, 250]
    assert rounds <= 13


# --- a machine on which a layer takes long ---------------------------------------------------


def slowly(engine: Engine, **options: Any) -> RowScheduler:
    """A scheduler on a machine that takes five seconds for each layer."""
    return RowScheduler(engine, clock=count(0, 5).__next__, **options)


LAYERS = 2
OPTIONS: dict[str, Any] = {"max_tokens": 4, "eos_token_ids": ()}


def test_rows_have_their_turns_while_a_chunk_is_read() -> None:
    with engine_with(shared_model("llama")) as engine:
        rows = slowly(engine)
        first, long = (engine.stream(each, **OPTIONS) for each in (PROMPTS[0], LONG))
        rows.add(first)
        rows.round()
        rows.add(long)
        for _ in range(LAYERS):
            assert {run for run, _ in rows.round()} == {first}
        while len(rows):
            rows.round()
        for run, prompt in ((first, PROMPTS[0]), (long, LONG)):
            assert run.result().tokens == plain(shared_model("llama"), prompt, 4).tokens


@pytest.mark.parametrize("beside", [0, 1], ids=["alone", "among others"])
def test_who_cancels_does_not_wait_for_a_chunk(beside: int) -> None:
    seen: list[int] = []
    stop = threading.Event()
    with engine_with(shared_model("llama")) as engine:
        rows = slowly(engine)
        run = engine.stream(
            LONG, cancel=stop, on_prefill_progress=lambda done, _: seen.append(done), **OPTIONS
        )
        others = [engine.stream(LONG, **OPTIONS) for _ in range(beside)]
        for each in (run, *others):
            rows.add(each)
        assert rows.round() == []
        stop.set()
        ((ended, piece),) = rows.round()
        assert (ended, piece.finish_reason) == (run, "cancelled")
        assert run.result().stats.cache_tokens == ()
        assert seen == [0]
        while len(rows):
            rows.round()
        for each in others:
            assert each.result().tokens == plain(shared_model("llama"), LONG, 4).tokens


@pytest.mark.parametrize("beside", [0, 1], ids=["alone", "among others"])
def test_who_is_dropped_does_not_wait_for_a_chunk(beside: int) -> None:
    with engine_with(shared_model("llama")) as engine:
        rows = slowly(engine)
        run, *others = (engine.stream(LONG, **OPTIONS) for _ in range(1 + beside))
        for each in (run, *others):
            rows.add(each)
        rows.round()
        rows.drop(run)
        assert len(rows) == beside
        assert run.result().finish_reason == "cancelled"
        while len(rows):
            rows.round()
        for each in others:
            assert each.result().tokens == plain(shared_model("llama"), LONG, 4).tokens


def test_a_short_prompt_that_comes_later_is_read_before_the_rest_of_a_chunk() -> None:
    with engine_with(shared_model("llama")) as engine:
        rows = slowly(engine)
        long = engine.stream(LONG, **OPTIONS)
        rows.add(long)
        rows.round()
        short = engine.stream(PROMPTS[2], **{**OPTIONS, "max_tokens": 1})
        rows.add(short)
        order: list[Any] = []
        while len(rows):
            order += [run for run, piece in rows.round() if piece.token is not None]
        assert order == [short] + [long] * 4
        assert long.result().tokens == plain(shared_model("llama"), LONG, 4).tokens


def test_a_chunk_ends_where_it_would_on_any_machine() -> None:
    seen: list[int] = []
    with engine_with(shared_model("llama")) as engine:
        for pace in (0, 5):
            rows = RowScheduler(engine, clock=count(0, pace).__next__)
            run = engine.stream(
                LONG,
                prefill_step_size=100,
                on_prefill_progress=lambda done, _: seen.append(done),
                **OPTIONS,
            )
            rows.add(run)
            while len(rows):
                rows.round()
    assert seen == [0, 100, 200, 249, 250] * 2


def test_the_scores_of_a_prompt_are_read_between_the_turns_of_others() -> None:
    with engine_with(shared_model("llama")) as engine:
        single = engine.stream(LONG, max_tokens=0, prompt_logprobs=0)
        single.result()
        rows = slowly(engine)
        first = engine.stream(PROMPTS[0], **OPTIONS)
        scored = engine.stream(LONG, max_tokens=0, prompt_logprobs=0)
        rows.add(first)
        rows.round()
        rows.add(scored)
        assert {run for run, _ in rows.round()} == {first}
        while len(rows):
            rows.round()
        assert scored.result().finish_reason == "length"
        assert scored.prompt_scores is not None
        assert single.prompt_scores is not None
        assert scored.prompt_scores.logprobs == single.prompt_scores.logprobs
        assert first.result().tokens == plain(shared_model("llama"), PROMPTS[0], 4).tokens


def test_a_cache_of_the_callers_own_goes_on_with_a_chunk_that_nobody_waits_for() -> None:
    model = shared_model("llama")
    with engine_with(model) as engine:
        cache = engine.target.new_cache()
        rows = slowly(engine)
        run = engine.stream(LONG, prompt_cache=cache, **OPTIONS)
        rows.add(run)
        rows.round()
        rows.drop(run)
        held = run.result().stats.cache_tokens
        assert cache[0].offset == len(held) == len(LONG) - 1
        again = engine.generate(LONG[-1:], prompt_cache=cache, **OPTIONS)
        assert again.tokens == plain(model, LONG, 4).tokens


def same(ours: dict[str, Any], theirs: dict[str, Any]) -> bool:
    """The same contents of a cache entry; of a ring what it shows."""
    shown = [
        [v[..., -8:, :] if name in {"keys", "values"} else v for name, v in sorted(each.items())]
        for each in (ours, theirs)
    ]
    return ours.keys() == theirs.keys() and all(
        mx.array_equal(a, b).item() if isinstance(a, mx.array) else a == b
        for a, b in zip(*shown, strict=True)
    )


@pytest.mark.parametrize("name", ["llama", "qwen3_5", "gemma3_text"])
@pytest.mark.parametrize("at", [None, 5, 24])
def test_a_snapshot_among_others_is_that_of_the_prompt_alone(name: str, at: int | None) -> None:
    model = shared_model(name)
    taken: list[PromptCache] = []
    options: dict[str, Any] = {
        "snapshot_at": at,
        "on_prefill_done": taken.append,
        "eos_token_ids": (),
    }
    with engine_with(model) as engine:
        engine.generate(PROMPTS[7], max_tokens=1, **options)
        others = [{"prompt": PROMPTS[i], "max_tokens": 2} for i in (6, 8)]
        engine.generate_batch([others[0], {"prompt": PROMPTS[7], **options}, others[1]])
    single, together = taken
    assert together.tokens == single.tokens == tuple(PROMPTS[7][: at or 29])
    for ours, theirs in zip(together.caches, single.caches, strict=True):
        assert same(contents(ours), contents(theirs))


def test_a_callback_that_raises_while_prompts_are_read_ends_its_own_run() -> None:
    def planted(done: int, _: int) -> None:
        if done:
            raise RuntimeError("planted")

    with engine_with(shared_model("llama")) as engine:
        rows = RowScheduler(engine)
        good = [engine.stream(PROMPTS[at], max_tokens=COUNT, eos_token_ids=()) for at in (7, 8)]
        bad = engine.stream(PROMPTS[7], max_tokens=COUNT, on_prefill_progress=planted)
        for run in (good[0], bad, good[1]):
            rows.add(run)
        while len(rows):
            rows.round()
        with pytest.raises(RuntimeError, match="planted"):
            bad.result()
        assert [run.result().tokens for run in good] == [alone("llama", 7), alone("llama", 8)]
