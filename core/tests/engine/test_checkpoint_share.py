"""Checkpoints take a bounded share of the time, and none waits behind another."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from mlxfill import Checkpoint
from mlxfill.request.options import Options
from mlxfill.resume import keeper
from mlxfill_testing import engine_with, shared_model
from patience import AT_ALL

if TYPE_CHECKING:
    from pathlib import Path

PROMPT = [7, 30, 9, 30, 11, 4]


def test_no_checkpoint_is_taken_while_one_is_being_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk stands still until the end; the last checkpoint is written all the same."""
    file, go, written = tmp_path / "reply", threading.Event(), list[int]()
    write = Checkpoint.write

    def slow(self: Checkpoint, path: Path) -> None:
        assert go.wait(AT_ALL)
        written.append(self.generated)
        write(self, path)

    monkeypatch.setattr(Checkpoint, "write", slow)
    with engine_with(shared_model("llama")) as engine:
        run = engine.stream(
            PROMPT, max_tokens=40, eos_token_ids=(), checkpoint=file, checkpoint_every=8
        )
        for at, _ in enumerate(run):
            if at == 38:  # before the end, which waits for the disk
                go.set()
    assert written[0] < 12
    assert written[-1] == 40
    assert len(written) <= 3
    assert Checkpoint.load(file).generated == 40


@pytest.mark.parametrize(
    ("every", "took", "expected"),
    [
        (None, 0.0, [256, 512, 768, 1024]),
        (None, 3.0, [256, 512, 768, 1024]),
        (None, 16.0, [256, 790]),
        (100, 16.0, [100, 200, 300, 400, 500, 600, 700, 800, 900, 1000]),
    ],
)
def test_one_that_takes_long_is_taken_less_often_unless_a_number_was_given(
    every: int | None, took: float, expected: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A token takes a second here: 3 in 100 of 256 seconds are 7.7."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(time, "perf_counter", lambda: clock.now)

    def capture(*_: object) -> object:
        clock.now += took
        return object()

    monkeypatch.setattr(keeper, "capture", capture)
    at: list[int] = []
    options = Options(checkpoint_every=every, on_checkpoint=lambda _: at.append(token))
    engine: Any = None
    kept, run = keeper.Keeper(engine, options), SimpleNamespace(reply=SimpleNamespace(tokens=[]))
    for token in range(1100):
        clock.now += 1.0
        if kept.due(token):
            run.reply.tokens = range(token)
            kept.take(run)  # type: ignore[arg-type]
    assert at == expected
