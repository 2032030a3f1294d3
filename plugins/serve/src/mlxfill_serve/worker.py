"""The thread that owns the engine.  Nobody else touches it."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, cast

from mlxfill import AuditedRun, MlxfillError, RowScheduler
from mlxfill_serve.audits import Audits
from mlxfill_serve.errors import ApiError, dead_engine, hung_engine, leaving, timed_out
from mlxfill_serve.faultlog import FaultLog
from mlxfill_serve.jobs import Ended, Opened, Scored, Token
from mlxfill_serve.readers import Readers
from mlxfill_serve.settings import ServeSettings
from mlxfill_serve.threads import begin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mlxfill import Engine, Piece, PromptScores, Run
    from mlxfill_serve.jobs import Job

SILENCE = 10.0
"""Seconds after which a client that hears nothing is told that its request is still alive."""
PATIENCE = 3
"""Rounds that may fail one after the other before the engine counts as dead."""


class EngineThread:
    """Loads an engine and runs jobs on it, several at a time.

    ::

        worker = EngineThread(lambda: mlxfill.load("tiny"))
        worker.start()              # raises what loading raised
        worker.submit(job)          # its events arrive in job.mailbox
        worker.stop()

    ``alive`` turns false when the thread ends for whatever reason; jobs get an error then.
    ``hung`` is true while it does not go on with its work, as when a device does not answer.
    """

    def __init__(
        self,
        load: Callable[[], Engine],
        *,
        settings: ServeSettings | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``clock``: seconds, by which requests are late and the thread stands still."""
        self.settings = settings or ServeSettings()
        self.rows = self.settings.rows
        self.failure: BaseException | None = None
        self.engine: Engine | None = None
        self._load = load
        self._inbox: SimpleQueue[Job | None] = SimpleQueue()
        self._jobs: dict[Run, Job] = {}
        self._audits = Audits()
        self.faults = FaultLog()
        self._opening: Job | None = None
        self._waiting = self._reserved = 0
        self._failed = 0
        self._clock = clock
        self._moved = clock()
        self.readers = Readers(self.settings.timeout)
        self._gate = threading.Lock()
        self._open = False
        self._loaded = threading.Event()
        self._ended: threading.Event | None = None

    # --- from any thread --------------------------------------------------------------

    def start(self) -> Engine:
        """Load the engine and begin to serve.  Raises what loading raised."""
        self._ended = begin(self._live)
        self._loaded.wait()
        if self.engine is None:
            raise self.failure or RuntimeError("the engine was not loaded")
        return self.engine

    @property
    def alive(self) -> bool:
        """Whether the thread is there and takes jobs."""
        return self._open

    @property
    def patience(self) -> float:
        """Seconds without a word to a client after which it is to hear of its request."""
        return min(SILENCE, self.settings.hang or SILENCE)

    @property
    def hung(self) -> bool:
        """Whether it has work and did none of it for ``hang`` seconds of the settings."""
        still, patience = self._clock() - self._moved, self.settings.hang
        return bool(patience and self._work) and still > patience

    @property
    def outstanding(self) -> int:
        """Jobs that are read, wait, or run."""
        return self._work + self._reserved

    @property
    def _work(self) -> int:
        return len(self._jobs) + len(self._audits) + self._waiting

    def check(self) -> None:
        """Raise ``ApiError`` (503) when the thread is dead or hung."""
        if not self.alive:
            raise dead_engine()
        if self.hung:
            raise hung_engine(self.settings.hang)

    @contextmanager
    def room(self, count: int) -> Iterator[None]:
        """Room for so many jobs, until the block has submitted them.

        :raises ApiError: 503 as ``check``; 429 when as many as may wait do so; 400 when there never
            is so much room.
        """
        self.check()
        most = self.rows + self.settings.queue
        if count > most:
            said = f"the request asks for {count} replies; the server has room for {most}"
            raise ApiError(400, said, code="invalid_value")
        if count > most - self.outstanding:
            said = f"{self.outstanding} requests are running or waiting: try again later"
            raise ApiError(429, said, code="queue_full", headers={"Retry-After": "1"})
        with self._gate:
            self._reserved += count
        try:
            yield
        finally:
            with self._gate:
                self._reserved -= count

    def submit(self, job: Job) -> None:
        """Queue a job.

        :raises ApiError: 503 as ``check``.
        """
        with self._gate:
            self.check()
            job.born = self._clock()
            if not self._work:  # until now it had nothing to do
                self._moved = job.born
            self._waiting += 1
            self._inbox.put(job)

    def stop(self, timeout: float = 5.0) -> None:
        """End the thread; jobs that still run get an error."""
        self.leave()
        self.readers.close()
        if self._ended is not None:
            self._ended.wait(timeout)

    def leave(self) -> None:
        """Tell the thread to end; does not wait for it."""
        self._inbox.put(None)

    # --- in the engine's thread -------------------------------------------------------

    def _live(self) -> None:
        try:
            with self._load() as engine:
                _warm_up(engine)
                self.engine, self._open = engine, True
                self._loaded.set()
                self._serve(engine)
        except BaseException as error:  # noqa: BLE001 - whatever it was, the thread is over
            self.failure = error
        finally:
            self._close()
            self._loaded.set()

    def _close(self) -> None:
        """Take no more jobs and tell those that are here."""
        with self._gate:
            self._open = False
        left = [*self._jobs.values(), *self._audits, *([self._opening] if self._opening else [])]
        while not self._inbox.empty():
            job = self._inbox.get_nowait()
            left += [] if job is None else [job]
        self._jobs.clear()
        self._audits.drop(self._audits)
        self._waiting = 0
        for job in left:
            job.tell(leaving() if self.failure is None else dead_engine())

    def _scheduler(self, engine: Engine) -> RowScheduler:
        return RowScheduler(engine, max_rows=self.rows, clock=self._clock)

    def _serve(self, engine: Engine) -> None:
        rows = self._scheduler(engine)
        while self._admit(engine, rows):
            try:
                self._drop_unwanted(rows)
                for run, piece in rows.round():
                    self._deliver(run, piece)
                self._audits.step()
            except Exception as error:
                rows = self._scheduler(engine)
                self._fail(error)
                if self._failed >= PATIENCE:
                    raise

    def _admit(self, engine: Engine, rows: RowScheduler) -> bool:
        """Take the jobs that came in; wait for one when there is nothing else to do."""
        idle = not (self._jobs or self._audits)
        while True:
            self._move()
            try:
                job = self._inbox.get(block=idle)
            except Empty:
                return True
            idle = False
            if job is None:
                return False
            if not job.gone:
                self._begin(engine, rows, job)
            # Counted until it is among the running ones, so that none is missed in between.
            with self._gate:
                self._waiting -= 1

    def _begin(self, engine: Engine, rows: RowScheduler, job: Job) -> None:
        self._opening = job
        try:
            opened = job.open(engine)
        except Exception as error:  # noqa: BLE001 - told to the client, whatever it is
            self._opening = None
            job.tell(error)
            return
        job.audited = opened if isinstance(opened, AuditedRun) else None
        run = opened.run if isinstance(opened, AuditedRun) else opened
        request = run.request
        job.tell(Opened(len(request.prompt_ids), request.prompt_text))
        self._jobs[run], self._opening = job, None
        rows.add(run)

    def _drop_unwanted(self, rows: RowScheduler) -> None:
        """Free the rows of clients that are gone or whose time is over."""
        now = self._clock()
        unwanted = [(run, job) for run, job in self._jobs.items() if job.gone or job.late(now)]
        for run, _ in unwanted:
            rows.drop(run)
            del self._jobs[run]
        unaudited = [job for job in self._audits if job.gone or job.late(now)]
        self._audits.drop(unaudited)
        for job in [*(job for _, job in unwanted), *unaudited]:
            if not job.gone:
                said = f"the request took longer than {job.timeout:g} s"
                job.tell(timed_out(said))

    def _deliver(self, run: Run, piece: Piece) -> None:
        job = self._jobs.get(run)
        if job is None:
            return
        if run.prompt_scores is not None and not job.scored:
            job.scored = True
            job.tell(_scored(run, run.prompt_scores))
        if piece.token is not None or piece.text:
            job.tell(_token(piece))
        if piece.finish_reason is not None:
            del self._jobs[run]
            self._failed = 0
            self.faults.tell(run.faults)
            ended = _ended(run, piece.finish_reason, last=job.audited is None)
            if job.audited is not None and isinstance(ended, Ended):
                self._audits.add(job)
            job.tell(ended)

    def _move(self) -> None:
        """Note that the thread goes on: called every round, which a long prompt cannot fill."""
        self._moved = self._clock()

    def _fail(self, error: Exception) -> None:
        """A round failed: nothing is known of the rows that were in it."""
        self._failed += 1
        failed = list(self._jobs.values())
        self._jobs.clear()
        for job in failed:
            job.tell(error)


def _warm_up(engine: Engine) -> None:
    """Do now what everybody would wait for while the first requests are answered.

    A plugin that holds replies reads the whole vocabulary, in seconds and without a pause.
    """
    engine.prepare()
    engine.no_rows()
    holding = any("mlxfill_constraint" in engine.plugins.hooks(n) for n in engine.plugins.names)
    if holding:
        with suppress(MlxfillError):  # told to whoever asks for a schema
            engine.check([0], schema={"enum": [0]})


def _scored(run: Run, scores: PromptScores) -> Scored:
    each = zip(run.request.prompt_ids, scores.logprobs, scores.top_logprobs, strict=True)
    return Scored([Token("", token, "prompt", logprob, tops) for token, logprob, tops in each])


def _token(piece: Piece) -> Token:
    logprob = None
    if piece.logprobs is not None and piece.token is not None:
        logprob = cast("float", piece.logprobs[piece.token].item())
    return Token(piece.text, piece.token, piece.origin, logprob, piece.top_logprobs)


def _ended(run: Run, reason: str, *, last: bool) -> Ended | Exception:
    if reason != "error":
        return Ended(reason, run.stats, last)
    try:
        run.result()
    except Exception as error:  # noqa: BLE001 - whatever ended the run is told to the client
        return error
    return RuntimeError("the run failed")
