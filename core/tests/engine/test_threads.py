"""What one thread began, another one goes on with: a run, a kept cache, a session."""

from __future__ import annotations

import asyncio
import copy
import pickle
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from mlxfill_testing import Guest, engine_with, plain, shared_model

if TYPE_CHECKING:
    from collections.abc import Callable

    from mlxfill import Piece, Run

T = TypeVar("T")

PROMPT = [5, 9, 5, 9, 5, 7]
COUNT = 16
OPTIONS: dict[str, Any] = {"max_tokens": COUNT, "eos_token_ids": ()}
NAMES = ["llama", "qwen3_5", "gemma3_text", "falcon_h1", "mamba2"]


def elsewhere(ask: Callable[[], T]) -> T:
    """What ``ask`` answers in a thread of its own."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(ask).result()


def guests(truth: list[int]) -> list[tuple[Guest, ...]]:
    """Nobody, a drafter, a source: right most of the time."""
    return [(), (Guest.drafting(truth, 0.7),), (Guest.offering(truth, 0.7),)]


@pytest.mark.parametrize("at", range(3))
@pytest.mark.parametrize("name", NAMES)
def test_each_piece_may_be_asked_for_in_another_thread(name: str, at: int) -> None:
    """As ``asyncio.to_thread(next, run)`` does."""
    model = shared_model(name)
    expected = plain(model, PROMPT, COUNT).tokens
    with engine_with(model, *guests(PROMPT + expected)[at]) as engine:
        run = engine.stream(PROMPT, **OPTIONS)
        pieces: list[Piece] = []
        while (piece := elsewhere(lambda: next(run, None))) is not None:
            pieces.append(piece)
        tokens = [piece.token for piece in pieces if piece.token is not None]
        assert tokens == elsewhere(run.result).tokens == expected
    assert run.faults == []


@pytest.mark.parametrize("name", NAMES)
def test_a_session_and_a_kept_cache_are_gone_on_with_in_another_thread(name: str) -> None:
    model = shared_model(name)
    first = plain(model, PROMPT, COUNT).tokens
    prompt = [*PROMPT, *first, 3]
    expected = plain(model, prompt, COUNT).tokens
    with engine_with(model) as engine:
        kept = elsewhere(lambda: engine.generate(PROMPT, keep_cache=True, **OPTIONS)).cache
        elsewhere(lambda: engine.generate(PROMPT, session="one", **OPTIONS))
        turn = engine.generate(prompt, session="one", **OPTIONS)
        given = engine.generate(prompt, cache=kept, **OPTIONS)
    assert turn.tokens == given.tokens == expected
    assert turn.stats.cached_tokens


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_what_there_is_one_of_is_not_copied(copied: Callable[[Any], Any]) -> None:
    """A copy of a run that nobody had read ended it when it was dropped."""
    model = shared_model("llama")
    with engine_with(model) as engine:
        run = engine.stream(PROMPT, **OPTIONS)
        with pytest.raises(TypeError, match=r"^a run cannot be copied: hand over .*$"):
            copied(run)
        with pytest.raises(TypeError, match=r"^an engine cannot be copied: load .*$"):
            copied(engine)
        assert run.result().tokens == plain(model, PROMPT, COUNT).tokens


def test_a_run_is_read_by_an_event_loop_that_leaves_it_half_way() -> None:
    model = shared_model("qwen3_5")
    expected = plain(model, PROMPT, COUNT).tokens

    async def pieces(run: Run) -> Any:
        try:
            while (piece := await asyncio.to_thread(next, run, None)) is not None:
                yield piece
        finally:
            await asyncio.to_thread(run.close)

    async def read(run: Run, count: int) -> list[int | None]:
        tokens: list[int | None] = []
        async for piece in pieces(run):
            tokens.append(piece.token)
            if len(tokens) == count:
                break
        return tokens

    with engine_with(model, Guest.drafting(PROMPT + expected, 0.7)) as engine:
        run = engine.stream(PROMPT, **OPTIONS)
        assert asyncio.run(read(run, 5)) == expected[:5]
        assert run.result().finish_reason == "cancelled"
        assert engine.generate(PROMPT, **OPTIONS).tokens == expected
