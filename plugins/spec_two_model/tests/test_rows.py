"""A row's cache is what a prefill of the same tokens builds, whatever happened on the way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from mlx_lm.models.cache import RotatingKVCache, make_prompt_cache

from mlxfill import DraftCheckpoint, DrafterError, Sampling
from mlxfill.sampling import Chooser
from mlxfill_spec_two_model.chain import CHUNK, DraftModel
from mlxfill_spec_two_model.rows import TwoModelRows
from mlxfill_spec_two_model.settings import TwoModelSettings
from mlxfill_testing import ROUNDED, ROUNDING, VOCAB, differences, shared_model

PROMPT = [7, 21, 3, 40, 55, 3, 12]
KINDS = ["llama", "qwen3_moe", "gemma3_text", "gpt_oss", "qwen3_5", "lfm2", "mamba2", "falcon_h1"]
"""Trimmable, rotating (rings of 8), hybrid, recurrent and composite caches."""

ROUND = st.tuples(st.just("round"), st.integers(1, 4), st.integers(0, 4))
CONSUME = st.tuples(st.just("consume"), st.integers(1, 5), st.just(0))
STORIES = st.lists(st.one_of(ROUND, CONSUME), min_size=1, max_size=7)


def rows_of(name: str, *checkpoints: DraftCheckpoint | None, **sampling: Any) -> TwoModelRows:
    chooser = Chooser(Sampling(seed=5, **sampling))
    model = DraftModel(shared_model(name), VOCAB)
    rows = TwoModelRows("test", model, TwoModelSettings())
    each = checkpoints or (None,)
    rows.append([chooser] * len(each), each)
    return rows


def ids(tokens: Sequence[int]) -> mx.array:
    return mx.array([list(tokens)])


class Session:
    """One row as the engine drives it: tokens processed, and the pending one."""

    def __init__(self, rows: TwoModelRows, prompt: Sequence[int], row: int = 0) -> None:
        self.rows, self.row = rows, row
        self.tokens = list(prompt)
        self.fresh = 0
        if len(prompt) > 1:
            rows.prefill(ids(prompt[:-1]))

    def new(self) -> int:
        self.fresh += 1
        return (self.fresh * 29 + 11) % VOCAB

    def round(self, depth: int, accepted: int) -> list[int]:
        """Draft; the first ``accepted`` ids (at most all) are taken, then comes another one."""
        drafted = self.rows.draft([self.tokens[-1]], depth, [len(self.tokens)])
        assert drafted.shape == (1, depth)
        drafts: Any = drafted[0].tolist()
        entered = [*drafts[:accepted], self.new()]
        self.rows.commit([entered])
        self.tokens += entered
        return list(drafts)

    def consume(self, count: int) -> None:
        """Others choose ``count`` tokens; the last of them is pending."""
        self.tokens += [self.new() for _ in range(count)]
        self.rows.consume(ids(self.tokens[-1 - count : -1]), [count])

    def play(self, story: list[tuple[str, int, int]]) -> None:
        for kind, size, accepted in story:
            if kind == "round":
                self.round(size, accepted)
            else:
                self.consume(size)


def check(name: str, session: Session) -> None:
    """The row's cache against one that is fed the processed tokens at once."""
    checkpoint = session.rows.capture(session.row)
    processed = session.tokens[:-1]
    assert checkpoint.processed_tokens == len(processed)
    model = shared_model(name)
    ours, theirs = session.rows._chains[session.row].cache, make_prompt_cache(model)
    model(ids(processed), cache=theirs)
    exact = name not in ROUNDED
    if exact and not any(isinstance(entry, RotatingKVCache) for entry in theirs):
        assert differences(ours, theirs) == []
    probe = ids([session.tokens[-1]])
    mine, other = model(probe, cache=ours), model(probe, cache=theirs)
    if exact:
        assert mx.array_equal(mine, other)
    else:
        assert mx.allclose(mine, other, rtol=1e-4, atol=10 * ROUNDING)


@pytest.mark.parametrize("name", KINDS)
@given(story=STORIES, length=st.integers(1, 12))
def test_any_story_leaves_the_cache_of_a_prefill(
    name: str, story: list[tuple[str, int, int]], length: int
) -> None:
    session = Session(rows_of(name), (PROMPT * 2)[:length])
    session.play(story)
    check(name, session)


@pytest.mark.parametrize("name", KINDS)
@given(story=STORIES)
def test_drafts_do_not_depend_on_the_story(name: str, story: list[tuple[str, int, int]]) -> None:
    session = Session(rows_of(name), PROMPT)
    session.play(story)
    alone = Session(rows_of(name), session.tokens)
    if name not in ROUNDED:
        assert session.round(3, 0) == alone.round(3, 0)


@pytest.mark.parametrize("name", ["llama", "gemma3_text", "qwen3_5"])
def test_greedy_drafts_are_what_the_model_writes(name: str) -> None:
    model = shared_model(name)
    cache = make_prompt_cache(model)
    logits, written = model(ids(PROMPT), cache=cache), []
    for _ in range(4):
        written.append(int(mx.argmax(logits[0, -1])))
        logits = model(ids(written[-1:]), cache=cache)
    assert Session(rows_of(name), PROMPT).round(4, 0) == written


@pytest.mark.parametrize(
    ("drafted", "accepted", "held"), [(3, 0, 1), (3, 1, 2), (3, 2, 3), (3, 3, 3)]
)
def test_the_cache_gives_back_what_was_refused_and_keeps_the_rest(
    drafted: int, accepted: int, held: int
) -> None:
    """The rewind is ``max(drafted - accepted - 1, 0)``; the last draft was never forwarded."""
    session = Session(rows_of("llama"), PROMPT)
    session.round(drafted, accepted)
    assert session.rows._chains[0].cache[0].offset == len(PROMPT) - 1 + held


def test_a_long_wait_is_forwarded_in_pieces() -> None:
    session = Session(rows_of("llama"), PROMPT)
    for _ in range(CHUNK // 100 + 1):
        session.consume(100)
    assert session.rows._chains[0].cache[0].offset >= CHUNK
    check("llama", session)


def test_no_drafts_asked_changes_nothing() -> None:
    rows = rows_of("llama")
    session = Session(rows, PROMPT)
    assert rows.draft([PROMPT[-1]], 0, [len(PROMPT)]).shape == (1, 0)
    check("llama", session)


# --- several rows ------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["qwen3_5", "llama"])
def test_rows_accept_raggedly_and_are_what_they_would_be_alone(name: str) -> None:
    prompts = [PROMPT, PROMPT[::-1], [9] * len(PROMPT)]
    together = rows_of(name, None, None, None)
    together.prefill(mx.array([prompt[:-1] for prompt in prompts]))
    alone = [Session(rows_of(name), prompt) for prompt in prompts]
    sessions = [list(prompt) for prompt in prompts]
    for accepted in ([0, 1, 2], [3, 0, 1], [2, 3, 0]):
        drafted = together.draft([s[-1] for s in sessions], 3, [len(s) for s in sessions])
        expected = [session.round(3, n) for session, n in zip(alone, accepted, strict=True)]
        assert drafted.tolist() == expected
        entered = [s.tokens[len(mine) :] for s, mine in zip(alone, sessions, strict=True)]
        together.commit(entered)
        for mine, new in zip(sessions, entered, strict=True):
            mine.extend(new)
    lengths = [2, 0, 1]
    for session, mine, length in zip(alone, sessions, lengths, strict=True):
        if length:
            session.consume(length)
        mine.extend(session.tokens[len(mine) :])
    before = [s[-1 - n : -1] + [0] * (2 - n) for s, n in zip(sessions, lengths, strict=True)]
    together.consume(mx.array(before), lengths)
    together.keep([2, 0])
    assert together.row_count == 2
    last = together.draft([sessions[i][-1] for i in (2, 0)], 2, [len(sessions[i]) for i in (2, 0)])
    assert last.tolist() == [alone[2].round(2, 0), alone[0].round(2, 0)]


# --- checkpoints ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", KINDS)
def test_a_restored_row_goes_on_as_if_nothing_had_happened(name: str) -> None:
    session = Session(rows_of(name), PROMPT)
    session.play([("round", 3, 1), ("consume", 2, 0), ("round", 3, 3)])
    checkpoint = session.rows.capture(0)
    kept = {path: array.tolist() for path, array in checkpoint.tensors.items()}
    expected = [session.round(3, 2), session.round(3, 0)]
    for _ in range(2):
        rows = rows_of(name, checkpoint)
        other = Session(rows, [])
        other.tokens, other.fresh = session.tokens[: checkpoint.processed_tokens + 1], 100
        other.fresh = session.fresh - 2
        assert [other.round(3, 2), other.round(3, 0)] == expected
    assert {path: array.tolist() for path, array in checkpoint.tensors.items()} == kept


def test_a_row_can_join_later() -> None:
    session = Session(rows_of("qwen3_5"), PROMPT)
    session.round(3, 1)
    checkpoint = session.rows.capture(0)
    rows = rows_of("qwen3_5", None)
    rows.append([Chooser(Sampling(seed=5))], [checkpoint])
    rows.keep([1])
    at = len(session.tokens)
    assert rows.draft([session.tokens[-1]], 3, [at]).tolist() == [session.round(3, 0)]


def test_an_empty_row_has_a_checkpoint_too() -> None:
    checkpoint = rows_of("llama").capture(0)
    assert checkpoint.processed_tokens == 0
    restored = Session(rows_of("llama", checkpoint), PROMPT)
    check("llama", restored)


def spoilt(checkpoint: DraftCheckpoint) -> list[tuple[DraftCheckpoint, str]]:
    tensors = dict(checkpoint.tensors)
    tensors.pop(min(tensors))
    return [
        (evolve(checkpoint, namespace="two-model:other"), "'two-model:other', this one is 'test'"),
        (evolve(checkpoint, processed_tokens=3), "says 3 processed tokens, its caches hold 6"),
        (evolve(checkpoint, metadata={}), "does not hold its caches"),
        (evolve(checkpoint, tensors=tensors), "does not hold its caches"),
    ]


@pytest.mark.parametrize("at", range(4))
def test_a_foreign_or_broken_checkpoint_is_refused(at: int) -> None:
    checkpoint, message = spoilt(Session(rows_of("llama"), PROMPT).rows.capture(0))[at]
    with pytest.raises(DrafterError, match=r".") as caught:
        rows_of("llama", checkpoint)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
