"""Ctrl-C that ends a reply and not the program."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from mlxfill.engine import Engine


@contextmanager
def stoppable(engine: Engine | None) -> Iterator[threading.Event | None]:
    """An event, for the option ``cancel``, that the first Ctrl-C sets.

    A second one interrupts the block as usual.  Where ranks share a model already the first one
    does, and there is no event: it reaches them at different tokens.

    :param engine: None when it is in another process.
    """
    if engine is not None and engine.team.size > 1:
        yield None
        return
    stop = threading.Event()

    def on_interrupt(_signal: int, _frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    before = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)
