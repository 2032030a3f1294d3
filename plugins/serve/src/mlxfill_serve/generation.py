"""All choices of one request, while they are made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlxfill_serve.errors import ApiError, as_api_error
from mlxfill_serve.jobs import Ended, Job, Opened
from mlxfill_serve.mailbox import Mailbox

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from mlxfill_serve.jobs import Event, Opener
    from mlxfill_serve.settings import ServeSettings
    from mlxfill_serve.worker import EngineThread


PATIENCE = 10.0
"""Seconds of silence after which a client is told that its request is still alive."""


class Generation:
    """Submits a job for each choice and gives their events as they come.

    ::

        generation = Generation(worker, settings, openers)
        prompts = await generation.opened()
        async for index, event in generation.events(): ...
        generation.drop()      # always; frees the rows when the client is gone
    """

    def __init__(
        self, worker: EngineThread, settings: ServeSettings, openers: Sequence[Opener]
    ) -> None:
        """Raises ``ApiError``: 429 when the queue is full, 503 when the engine is dead."""
        mailbox: Mailbox[tuple[int, Event]] = Mailbox()
        most = worker.rows + settings.queue
        if len(openers) > most:
            said = f"the request asks for {len(openers)} replies; the server has room for {most}"
            raise ApiError(400, said, code="invalid_value")
        room = most - worker.outstanding
        if worker.alive and len(openers) > max(room, 0):
            said = f"{worker.outstanding} requests are running or waiting: try again later"
            raise ApiError(429, said, code="queue_full", headers={"Retry-After": "1"})
        self._mailbox = mailbox
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
        while len(known) < len(self._jobs):
            for index, event in await self._mailbox.take(PATIENCE):
                if isinstance(event, Exception):
                    self.drop()
                    raise as_api_error(event)
                if isinstance(event, Opened):
                    known[index] = event
                else:
                    self._early.append((index, event))
        return [known[index] for index in range(len(self._jobs))]

    async def bursts(self) -> AsyncIterator[list[tuple[int, Event]]]:
        """Events in their order, those that came together in one list, until all choices ended.

        An empty list says that nothing came for a while.

        :raises ApiError: a choice failed.
        """
        while self._running:
            burst = self._early or await self._mailbox.take(PATIENCE)
            self._early = []
            for index, event in burst:
                if isinstance(event, Exception):
                    raise as_api_error(event)
                if isinstance(event, Ended):
                    self._running.discard(index)
            yield burst

    def drop(self) -> None:
        """Nobody listens any more."""
        for job in self._jobs:
            job.gone = True
