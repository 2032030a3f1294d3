"""Threads that compute, used again: mlx keeps threads of its own for each of them, to the end."""

from __future__ import annotations

import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    Inbox = SimpleQueue[tuple[Callable[[], None], threading.Event]]

_idle: list[Inbox] = []


def begin(work: Callable[[], None]) -> threading.Event:
    """Do ``work``, which catches its errors, in a thread that nothing else uses meanwhile.

    A daemon: a device that hangs must not keep the process from ending.  It never ends by itself,
    as one that leaves its mlx streams behind makes the process abort.

    :returns: set when it is done.
    """
    done = threading.Event()
    try:
        inbox = _idle.pop()
    except IndexError:
        inbox = SimpleQueue()
        name = "mlxfill-engine"
        threading.Thread(target=_work_on, args=(inbox,), name=name, daemon=True).start()
    inbox.put((work, done))
    return done


def _work_on(inbox: Inbox) -> None:
    while True:
        work, done = inbox.get()
        work()
        del work  # it holds an engine
        _idle.append(inbox)
        done.set()
