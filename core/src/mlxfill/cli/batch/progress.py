"""How far a batch is: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from attrs import define, field

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console

PARTS = 10
"""Lines that a whole batch takes where there is no terminal."""


@define
class Tally:
    """``done`` of ``total`` requests, ``failed`` ones too; ``tokens`` since the start."""

    total: int
    done: int
    failed: int = 0
    tokens: int = 0
    rows: int = 0
    started: float = field(factory=time.perf_counter)

    @property
    def speed(self) -> float:
        """Tokens of all rows per second, prompts included in the time."""
        return self.tokens / max(time.perf_counter() - self.started, 1e-9)

    @property
    def summary(self) -> str:
        """In one line."""
        return f"{self.done}/{self.total} done, {self.tokens} tokens, {self.speed:.1f} tokens/s"


@contextmanager
def shown(console: Console, tally: Tally) -> Iterator[Callable[[], None]]:
    """What to call after each round."""
    if not console.is_terminal:
        yield _lines(console, tally)
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeRemainingColumn as Remaining

    figures = TextColumn("{task.fields[rows]} rows  {task.fields[speed]:.1f} tokens/s")
    columns = (BarColumn(), MofNCompleteColumn(), figures, Remaining())
    # Lines on the same terminal go above the bar; those for a pipe are none of rich's business.
    with Progress(*columns, console=console, redirect_stdout=sys.stdout.isatty()) as bar:
        task = bar.add_task("batch", total=tally.total, completed=tally.done, rows=0, speed=0.0)
        yield lambda: bar.update(task, completed=tally.done, rows=tally.rows, speed=tally.speed)


def _lines(console: Console, tally: Tally) -> Callable[[], None]:
    last = tally.done * PARTS // tally.total

    def show() -> None:
        nonlocal last
        part = tally.done * PARTS // tally.total
        if part != last:
            last = part
            console.print(f"{tally.summary}, {tally.rows} rows", markup=False, soft_wrap=True)

    return show
