"""A run that is over gives its caches back at once, not when Python next looks for garbage."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any
from weakref import ref

import pytest

from mlxfill import Engine, RowScheduler
from mlxfill_testing import Guest, Script, ScriptedSource, engine_with, tiny_model

if TYPE_CHECKING:
    from collections.abc import Iterator

PROMPT = [5, 9, 5, 9, 5, 7]


@pytest.fixture
def engine() -> Iterator[Engine]:
    """With a source and a drafter; nothing is collected meanwhile."""
    guest = Guest.drafting([*PROMPT, 3, 1, 4, 1, 5] * 8, 0.5)
    with engine_with(tiny_model("qwen3_5"), guest) as engine:
        engine.generate(PROMPT, max_tokens=4)
        gc.collect()
        gc.disable()
        yield engine
        gc.enable()


def opened(engine: Engine, count: int, **options: Any) -> tuple[list[Any], list[Any]]:
    """Runs, and weak references to them."""
    runs = [engine.stream(PROMPT, max_tokens=12, seed=n, **options) for n in range(count)]
    return runs, [ref(run) for run in runs]


def alive(references: list[Any]) -> int:
    return sum(reference() is not None for reference in references)


def test_a_run_that_was_iterated_to_its_end(engine: Engine) -> None:
    runs, known = opened(engine, 2)
    while runs:
        run = runs.pop()
        assert list(run)[-1].finish_reason is not None
        del run
    assert alive(known) == 0


def test_a_run_whose_result_was_taken_and_one_that_was_left_early(engine: Engine) -> None:
    runs, known = opened(engine, 2)
    assert runs[0].result().tokens
    next(runs[1])
    runs[1].close()
    runs.clear()
    assert alive(known) == 0


@pytest.mark.parametrize("stop", [False, True])
@pytest.mark.parametrize("read", [0, 1, 5, 12, 99])
def test_a_run_that_its_reader_drops_at_any_piece(read: int, *, stop: bool) -> None:
    guest = Guest.drafting([*PROMPT, 3, 1, 4, 1, 5] * 8, 0.5)
    with engine_with(tiny_model("qwen3_5"), guest) as engine:
        text = engine.generate(PROMPT, max_tokens=12, seed=0).text
        guest.events.clear()
        gc.disable()
        try:
            (run,), known = opened(engine, 1, stop=text[len(text) // 2] if stop else ())
            for _, piece in zip(range(read), run, strict=False):
                if piece.finish_reason:
                    break
            del run
            assert alive(known) == 0
            assert [event.kind for event in guest.events] == ["request", "finish"]
        finally:
            gc.enable()


def test_rows_that_ended_and_rows_that_were_dropped(engine: Engine) -> None:
    runs, known = opened(engine, 4)
    rows = RowScheduler(engine, max_rows=3)
    for run in runs:
        rows.add(run)
    rows.round()
    rows.drop(runs[1])
    while len(rows):
        rows.round()
    run = None
    runs.clear()
    assert alive(known) == 0


def test_an_engine_that_was_closed_is_gone_with_its_model() -> None:
    script = Script([*PROMPT, 3, 1, 4, 1, 5] * 8, 0.5)
    guest = Guest(sources=[lambda request: ScriptedSource(request=request, script=script)])
    gc.collect()
    gc.disable()
    try:
        with engine_with(tiny_model("qwen3_5"), guest) as engine:
            engine.generate(PROMPT, max_tokens=12)
            engine.generate(PROMPT, max_tokens=12, session="s")
            known = [ref(engine), ref(engine.target)]
        del engine
        assert alive(known) == 0
    finally:
        gc.enable()
