"""All choices of one request, while they are made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlxfill_serve.errors import as_api_error
from mlxfill_serve.jobs import Audited, Ended, Job, Opened
from mlxfill_serve.mailbox import Mailbox

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from mlxfill_serve.jobs import Event, Opener
    from mlxfill_serve.worker import EngineThread


class Generation:
    """Submits a job for each choice and gives their events as they come.

    ::

        generation = Generation(worker, openers)
        prompts = await generation.opened()
        async for index, event in generation.events(): ...
        generation.drop()      # always; frees the rows when the client is gone
    """

    def __init__(self, worker: EngineThread, openers: Sequence[Opener]) -> None:
        """Raises ``ApiError``: 503 when the engine is dead or hung."""
        mailbox: Mailbox[tuple[int, Event]] = Mailbox()
        settings = worker.settings
        self._worker, self._mailbox = worker, mailbox
        self._jobs = [
            Job(opener, mailbox, index, settings.timeout) for index, opener in enumerate(openers)
        ]
        self._early: list[tuple[int, Event]] = []
        self._running = set(range(len(openers)))
        for job in self._jobs:
            worker.submit(job)

    async def opened(self) -> list[Opened]:
        """What is known of each choice before its first token.

        :raises ApiError: a request cannot be generated.
        """
        known: dict[int, Opened] = {}
        try:
            while len(known) < len(self._jobs):
                known |= await self._newly_opened()
        except BaseException:
            self.drop()
            raise
        return [known[index] for index in range(len(self._jobs))]

    async def _newly_opened(self) -> dict[int, Opened]:
        known: dict[int, Opened] = {}
        for index, event in await self._take():
            if isinstance(event, Exception):
                raise as_api_error(event)
            if isinstance(event, Opened):
                known[index] = event
            else:
                self._early.append((index, event))
        return known

    async def bursts(self) -> AsyncIterator[list[tuple[int, Event]]]:
        """Events in their order, those that came together in one list, until all choices ended.

        An empty list says that nothing came for a while.

        :raises ApiError: a choice failed.
        """
        while self._running:
            burst = self._early or await self._take()
            self._early = []
            for index, event in burst:
                if isinstance(event, Exception):
                    raise as_api_error(event)
                if isinstance(event, Audited) or (isinstance(event, Ended) and event.last):
                    self._running.discard(index)
            yield burst

    async def _take(self) -> list[tuple[int, Event]]:
        """What came; nothing when nothing came for a while, and the engine is well.

        :raises ApiError: 503, it is not.
        """
        events = await self._mailbox.take(self._worker.patience)
        if not events:
            self._worker.check()
        return events

    def drop(self) -> None:
        """Nobody listens any more."""
        for job in self._jobs:
            job.gone = True
