"""A large stack: llguidance follows rules into rules, and without one it ends the process."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

STACK = 256 << 20
"""Bytes, of which only those count that are used: 16,000 for a level of a schema, at most."""
_gate = threading.Lock()


def deeply(work: Callable[[], T]) -> T:
    """What ``work`` gives, or raises, in a thread of its own with a large stack."""
    given: list[T] = []
    raised: list[BaseException] = []

    def run() -> None:
        try:
            given.append(work())
        except BaseException as error:  # noqa: BLE001 - raised again below
            raised.append(error)

    thread = threading.Thread(target=run, name="mlxfill-compile", daemon=True)
    with _gate:  # the size is that of every thread that begins meanwhile
        usual = threading.stack_size(STACK)
        try:
            thread.start()
        finally:
            threading.stack_size(usual)
    thread.join()
    if raised:
        raise raised.pop()
    return given.pop()
