"""Replies that are compared with plain decoding once they have ended, in the engine's thread."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from mlxfill_serve.jobs import Audited

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mlxfill_serve.jobs import Job


class Audits:
    """One after the other, a forward at a time: requests that decode have their rounds between."""

    def __init__(self) -> None:
        self._waiting: deque[Job] = deque()
        self._steps: Iterator[None] | None = None

    def __len__(self) -> int:
        """Jobs whose audit has not ended."""
        return len(self._waiting)

    def __iter__(self) -> Iterator[Job]:
        """These jobs."""
        return iter(tuple(self._waiting))

    def add(self, job: Job) -> None:
        """A job whose reply has ended."""
        self._waiting.append(job)

    def drop(self, jobs: Iterable[Job]) -> None:
        """Nobody waits for these any more."""
        for job in jobs:
            if job is self._waiting[0]:
                self._steps = None
            self._waiting.remove(job)

    def step(self) -> None:
        """Go on with the first one, and tell what was found at its end."""
        if not self._waiting:
            return
        job = self._waiting[0]
        audited = job.audited
        assert audited is not None  # noqa: S101 - only such jobs are added
        self._steps = self._steps or audited.steps()
        try:
            if next(self._steps, self) is not self:
                return
            job.tell(Audited(audited.found))
        except Exception as error:  # noqa: BLE001 - told to the client, whatever it is
            job.tell(error)
        self.drop([job])
