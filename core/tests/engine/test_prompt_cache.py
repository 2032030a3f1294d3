"""What one request leaves in the prompt cache changes no word of the next."""

from __future__ import annotations

import random
from typing import Any

import mlx.core as mx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlx_lm.models.cache import KVCache, make_prompt_cache

from mlxfill.prefix_cache.store import Entry, PrefixCache, common, packed
from mlxfill_testing import Guest, engine_with, plain, shared_model

COUNT = 12
OPTIONS: dict[str, Any] = {"max_tokens": COUNT, "eos_token_ids": ()}
NAMES = [
    "llama",
    "qwen3_5",
    "lfm2",
    "mamba2",
    "gemma3_text",
    "recurrent_gemma",
    "falcon_h1",
    "llama4",
]
rng = random.Random(3)
SYSTEM = "".join(rng.choices("abcdefghij ", k=90))
A = [rng.randrange(1, 64) for _ in range(150)]
B = [*A[:100], *(rng.randrange(1, 64) for _ in range(40))]


def chat(*texts: str) -> list[dict[str, str]]:
    """A conversation with a long system message."""
    roles = ("user", "assistant")
    turns = [{"role": roles[at % 2], "content": text} for at, text in enumerate(texts)]
    return [{"role": "system", "content": SYSTEM}, *turns]


def told(model: Any, prompt: Any, **options: Any) -> list[int]:
    """What a fresh engine says."""
    return plain(model, prompt, COUNT, **options).tokens


@pytest.mark.parametrize("name", NAMES)
def test_requests_that_begin_alike_say_what_they_would_say_alone(name: str) -> None:
    model = shared_model(name)
    cached = []
    with engine_with(model) as engine:
        for prompt in (A, B, A, [*A, 5, 6], B[:120], A):
            result = engine.generate(prompt, session="s", **OPTIONS)
            assert result.tokens == told(model, prompt)
            cached.append(result.stats.cached_tokens)
    assert cached[0] == 0
    assert cached[2] == cached[5] == len(A) - 1
    assert cached[3] >= len(A) - 1
    if name == "llama":
        assert cached[1] == 100


@pytest.mark.parametrize("name", NAMES)
def test_the_next_turn_processes_what_is_new(name: str) -> None:
    model = shared_model(name)
    with engine_with(model) as engine:
        texts = ["the first question"]
        for turn in range(3):
            result = engine.generate(
                chat(*texts), session="s", temperature=0.8, seed=turn, **OPTIONS
            )
            assert result.tokens == told(model, chat(*texts), temperature=0.8, seed=turn)
            if turn:
                new = result.stats.prompt_tokens - result.stats.cached_tokens
                assert new < 60 < result.stats.cached_tokens
            texts += [result.text, "and then"]
        other = engine.generate(chat("something else"), session="other", **OPTIONS)
        assert other.tokens == told(model, chat("something else"))
        assert other.stats.cached_tokens > 64  # the system message


@pytest.mark.parametrize("aux_states", [(), (1,)], ids=["alone", "aux_states"])
@pytest.mark.parametrize("name", ["llama", "qwen3_5", "gemma3_text"])
def test_the_drafter_has_its_state_beside_the_targets(
    name: str, aux_states: tuple[int, ...]
) -> None:
    model = shared_model(name)
    truth = [*A, *told(model, A), *range(1, 20)]
    guest = Guest.drafting(truth, 0.7, aux_layers=aux_states, prefill_mode="full")
    assert guest.drafter is not None
    with engine_with(model, guest) as engine:
        for prompt in (A, B, A, [*A, 5, 6]):
            result = engine.generate(prompt, session="s", **OPTIONS)
            assert result.tokens == told(model, prompt)
            assert result.faults == []
            rows = guest.drafter.opened[-1]
            assert rows.rounds
            assert rows.known == [*prompt, *result.tokens][: len(rows.known)]
            if aux_states:
                assert sum(each.shape[1] for each in rows.aux_states) == len(rows.known)
        assert result.stats.cached_tokens >= len(A) - 1


@pytest.mark.parametrize("name", ["llama", "qwen3_5"])
def test_rows_take_part(name: str) -> None:
    model = shared_model(name)
    asked = [{"prompt": prompt, "session": "s", **OPTIONS} for prompt in (A, B, [*A, 5, 6])]
    with engine_with(model) as engine:
        engine.generate_batch(asked)
        results = engine.generate_batch(asked)
    for request, result in zip(asked, results, strict=True):
        assert result.tokens == told(model, request["prompt"])
        assert result.stats.cached_tokens == len(request["prompt"]) - 1


def test_a_request_may_be_left_and_its_caches_be_used() -> None:
    """Nobody but the store changes what is in it."""
    model = shared_model("qwen3_5")
    with engine_with(model) as engine:
        first = engine.generate(A, session="s", keep_cache=True, **OPTIONS)
        assert first.cache is not None
        mx.eval(model(mx.array([[1, 2, 3]]), cache=first.cache.caches))
        run = engine.stream(A, session="s", **OPTIONS)
        for _ in range(4):
            next(run)
        both = engine.stream(A, session="s", **OPTIONS)
        next(both)
        run.close()
        assert both.result().tokens == told(model, A)
        assert engine.generate(A, session="s", **OPTIONS).tokens == told(model, A)


def test_who_takes_part() -> None:
    model = shared_model("llama", head_dim=32)
    with engine_with(model) as engine:
        engine.generate(A, **OPTIONS)
        assert len(engine.prompts) == 0
        engine.generate(A, session="s", kv_bits=8, kv_group_size=32, **OPTIONS)
        engine.generate(A, session="s", max_kv_size=32, **OPTIONS)
        engine.generate(A, session="s", snapshot_at=9, **OPTIONS)
        assert len(engine.prompts) == 0
        engine.generate(A, session="s", **OPTIONS)
        assert len(engine.prompts) == 1
        seen: list[tuple[int, int]] = []
        again = engine.generate(
            A, session="t", on_prefill_progress=lambda *at: seen.append(at), **OPTIONS
        )
        assert again.stats.cached_tokens == len(A) - 1
        assert seen == [(len(A) - 1, len(A)), (len(A), len(A))]
    for table, expected in (({"every_request": True}, len(A) - 1), ({"max_entries": 0}, 0)):
        with engine_with(model, config={"cache": table}) as engine:
            session = None if expected else "s"
            engine.generate(A, session=session, **OPTIONS)
            result = engine.generate(A, session=session, **OPTIONS)
            assert result.stats.cached_tokens == expected


@pytest.mark.parametrize("kind", ["prompt_cache", "input_embeddings"])
def test_a_resumed_request_leaves_nothing_that_has_other_names(kind: str) -> None:
    model = shared_model("llama")
    left: list[Any] = []
    given: Any = make_prompt_cache(model)
    mx.eval(model(mx.array([[7, 7, 7]]), cache=given))
    if kind == "input_embeddings":
        given = model.model.embed_tokens(mx.array(A[::-1]))
    with engine_with(model) as engine:
        asked = {"on_checkpoint": left.append, "checkpoint_every": 4, "session": "s", **OPTIONS}
        whole = engine.generate(A, **{kind: given}, **asked)
        assert engine.resume(left[0]).result().tokens == whole.tokens
        assert engine.generate([*A, 3], session="s", **OPTIONS).tokens == told(model, [*A, 3])


def test_a_closed_engine_keeps_nothing_of_requests_that_go_on() -> None:
    engine = engine_with(shared_model("llama"))
    run = engine.stream(A, session="s", **OPTIONS)
    next(run)
    engine.close()
    assert run.result().tokens == told(shared_model("llama"), A)
    assert len(engine.prompts) == 0


def test_memory_stays_within_its_bounds() -> None:
    model = shared_model("qwen3_5")
    bounds = {"max_entries": 5, "max_mb": 1}
    with engine_with(model, config={"cache": bounds}) as engine:
        active: list[int] = []
        for turn in range(200):
            start = [turn % 3 + 1, *A[: 70 + turn % 40]]
            engine.generate(start, session="s", max_tokens=2, eos_token_ids=())
            assert len(engine.prompts) <= 5
            assert engine.prompts.nbytes <= 1 << 20
            active.append(mx.get_active_memory())
        assert max(active[100:]) <= max(active[:100]) * 1.05
    assert len(engine.prompts) == 0


def test_a_run_that_is_collected_while_caches_are_chosen_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = shared_model("llama")
    with engine_with(model, config={"cache": {"max_entries": 2}}) as engine:
        for prompt in (A, A[1:]):
            engine.generate(prompt, session="s", **OPTIONS)
        left = engine.stream(A[2:], session="s", **OPTIONS)
        next(left)

        def usable(self: Entry, *asked: Any) -> int:
            count = chosen(self, *asked)
            left.close()  # as Python's collector would, wherever it comes in
            return count

        chosen = Entry.usable
        monkeypatch.setattr(Entry, "usable", usable)
        result = engine.generate([*A, 3], session="s", **OPTIONS)
        assert result.tokens == told(model, [*A, 3])
        assert result.stats.cached_tokens >= len(A)
        assert len(engine.prompts) == 2


# --- the store itself -------------------------------------------------------------------------


def holding(ids: list[int]) -> list[Any]:
    """One cache entry whose keys are the ids themselves."""
    entry = KVCache()
    keys = mx.array(ids, mx.float32)[None, None, :, None]
    entry.update_and_fetch(keys, keys)
    return [entry]


prompts = st.lists(st.integers(0, 2), min_size=1, max_size=12)


@given(st.lists(st.tuples(prompts, st.booleans()), max_size=12))
@settings(max_examples=50)
def test_what_is_fetched_is_the_longest_beginning_that_is_kept(
    calls: list[tuple[list[int], bool]],
) -> None:
    store = PrefixCache(100, 1 << 30)
    kept: list[list[int]] = []
    for ids, keeps in calls:
        if keeps:
            store.keep(ids, holding(ids), None)
            kept.append(ids)
            continue
        held = store.fetch(ids)
        alike = [common(packed(ids), packed(old)) for old in kept]
        best = min(max(alike, default=0), len(ids) - 1)
        assert (held.count if held else 0) == best
        if held:
            keys, _ = held.caches[0].keys_and_values()
            assert keys.flatten().tolist() == ids[:best]
            held.caches[0].update_and_fetch(keys[:, :, :1], keys[:, :, :1])  # it is ours


@given(st.lists(st.integers(0, 1), max_size=9), st.lists(st.integers(0, 1), max_size=9))
def test_common_counts_equal_ids(a: list[int], b: list[int]) -> None:
    equal = [x == y for x, y in zip(a, b, strict=False)]
    assert common(packed(a), packed(b)) == (equal.index(False) if False in equal else len(equal))
