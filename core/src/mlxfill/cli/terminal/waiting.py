"""Shows on standard error, if that is a terminal, that something takes its time."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console
    from rich.progress import Progress


RANK = "MLX_RANK"
"""The variable in which ``mlx.launch`` tells a process its number."""


@contextmanager
def waiting(console: Console, what: str) -> Iterator[None]:
    """A spinner while the block runs; of several ranks, which write to pipes, the first tells."""
    if not console.is_terminal:
        if os.environ.get(RANK) == "0":
            console.print(what, markup=False, soft_wrap=True)
        yield
        return
    spinner = "dots" if console.encoding.startswith("utf") else "line"
    with console.status(what, spinner=spinner):
        yield


@contextmanager
def prefill_bar(console: Console) -> Iterator[Callable[[int, int], None] | None]:
    """Something for ``on_prefill_progress`` that draws a bar while a part of the prompt is left.

    Where nobody calls it there is no bar: one that stands breaks up the text of the reply.
    """
    if not console.is_terminal:
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("reading"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bar = Bar(*columns, console=console, transient=True)
    try:
        yield _advance(bar)
    finally:
        bar.stop()


def _advance(bar: Progress) -> Callable[[int, int], None]:
    task = bar.add_task("reading")

    def advance(done: int, total: int) -> None:
        bar.update(task, completed=done, total=total)
        if done < total:
            bar.start()
        else:
            bar.stop()

    return advance
