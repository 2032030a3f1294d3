"""From a thread to a coroutine: what is put in comes out in order, several at a time."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class Mailbox(Generic[T]):
    """Filled from any thread, emptied in the event loop that made it.

    The loop is woken once for all that came in while it was busy: a burst of tokens costs one
    wake-up.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._items: deque[T] = deque()
        self._filled = asyncio.Event()
        self._waking = False

    def put(self, item: T) -> None:
        """Add an item.  It is lost when the loop has ended: then nobody reads it."""
        self._items.append(item)
        if self._waking:
            return
        self._waking = True
        try:
            self._loop.call_soon_threadsafe(self._filled.set)
        except RuntimeError:
            self._items.clear()

    async def take(self, patience: float) -> list[T]:
        """Everything that is there; nothing when nothing came for ``patience`` seconds."""
        until = self._loop.time() + patience
        # A wake-up may be for what was taken already: look again.
        while not self._items and self._loop.time() < until:
            alarm = self._loop.call_at(until, self._filled.set)
            await self._filled.wait()
            alarm.cancel()
            self._filled.clear()
            # Set back before looking: whoever adds from here on wakes the loop again.
            self._waking = False
        return [self._items.popleft() for _ in range(len(self._items))]
