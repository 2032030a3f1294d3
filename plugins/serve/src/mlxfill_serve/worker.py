"""The thread that owns the engine.  Nobody else touches it."""

from __future__ import annotations

import threading
import time
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, cast

from mlxfill import RowScheduler
from mlxfill_serve.errors import ApiError, dead_engine, leaving
from mlxfill_serve.jobs import Ended, Opened, Token
from mlxfill_serve.settings import ServeSettings

if TYPE_CHECKING:
    from collections.abc import Callable

    from mlxfill import Engine, Piece, Run
    from mlxfill_serve.jobs import Job

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
    """

    def __init__(
        self, load: Callable[[], Engine], *, settings: ServeSettings | None = None
    ) -> None:
        self.settings = settings or ServeSettings()
        self.rows = self.settings.rows
        self.failure: BaseException | None = None
        self.engine: Engine | None = None
        self._load = load
        self._inbox: SimpleQueue[Job | None] = SimpleQueue()
        self._jobs: dict[Run, Job] = {}
        self._opening: Job | None = None
        self._waiting = 0
        self._failed = 0
        self._gate = threading.Lock()
        self._open = False
        self._loaded = threading.Event()
        # A daemon: a device that hangs must not keep the process from ending.
        self._thread = threading.Thread(target=self._live, name="mlxfill-engine", daemon=True)

    # --- from any thread --------------------------------------------------------------

    def start(self) -> Engine:
        """Load the engine and begin to serve.  Raises what loading raised."""
        self._thread.start()
        self._loaded.wait()
        if self.engine is None:
            raise self.failure or RuntimeError("the engine was not loaded")
        return self.engine

    @property
    def alive(self) -> bool:
        """Whether jobs are taken."""
        return self._open and self._thread.is_alive()

    @property
    def outstanding(self) -> int:
        """Jobs that run or wait."""
        return len(self._jobs) + self._waiting

    def submit(self, job: Job) -> None:
        """Queue a job.

        :raises ApiError: 503, the thread is dead.
        """
        with self._gate:
            if not self.alive:
                raise dead_engine()
            self._waiting += 1
            self._inbox.put(job)

    def stop(self, timeout: float = 5.0) -> None:
        """End the thread; jobs that still run get an error."""
        self.leave()
        self._thread.join(timeout)

    def leave(self) -> None:
        """Tell the thread to end; does not wait for it."""
        self._inbox.put(None)

    # --- in the engine's thread -------------------------------------------------------

    def _live(self) -> None:
        try:
            with self._load() as engine:
                self.engine, self._open = engine, True
                self._loaded.set()
                self._serve(engine)
        except BaseException as error:  # noqa: BLE001 - whatever it was, the thread is over
            self.failure = error
        finally:
            self._close()
            _give_streams_back()
            self._loaded.set()

    def _close(self) -> None:
        """Take no more jobs and tell those that are here."""
        with self._gate:
            self._open = False
        left = [*self._jobs.values(), *([self._opening] if self._opening else [])]
        while not self._inbox.empty():
            job = self._inbox.get_nowait()
            left += [] if job is None else [job]
        self._jobs.clear()
        self._waiting = 0
        for job in left:
            job.tell(leaving() if self.failure is None else dead_engine())

    def _serve(self, engine: Engine) -> None:
        rows = RowScheduler(engine, max_rows=self.rows)
        while self._admit(engine, rows):
            try:
                self._drop_unwanted(rows)
                for run, piece in rows.round():
                    self._deliver(run, piece)
            except Exception as error:
                rows = RowScheduler(engine, max_rows=self.rows)
                self._fail(error)
                if self._failed >= PATIENCE:
                    raise

    def _admit(self, engine: Engine, rows: RowScheduler) -> bool:
        """Take the jobs that came in; wait for one when there is nothing else to do."""
        idle = not self._jobs
        while True:
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
            run = job.open(engine)
        except Exception as error:  # noqa: BLE001 - told to the client, whatever it is
            self._opening = None
            job.tell(error)
            return
        request = run.request
        job.tell(Opened(len(request.prompt_ids), request.prompt_text))
        self._jobs[run], self._opening = job, None
        rows.add(run)

    def _drop_unwanted(self, rows: RowScheduler) -> None:
        """Free the rows of clients that are gone or whose time is over."""
        now = time.monotonic()
        unwanted = [(run, job) for run, job in self._jobs.items() if job.gone or job.late(now)]
        for run, job in unwanted:
            rows.drop(run)
            del self._jobs[run]
            if not job.gone:
                said = f"the request took longer than {job.timeout:g} s"
                job.tell(ApiError(504, said, code="timeout"))

    def _deliver(self, run: Run, piece: Piece) -> None:
        job = self._jobs.get(run)
        if job is None:
            return
        if piece.token is not None or piece.text:
            job.tell(_token(piece))
        if piece.finish_reason is not None:
            del self._jobs[run]
            self._failed = 0
            job.tell(_ended(run, piece.finish_reason))

    def _fail(self, error: Exception) -> None:
        """A round failed: nothing is known of the rows that were in it."""
        self._failed += 1
        failed = list(self._jobs.values())
        self._jobs.clear()
        for job in failed:
            job.tell(error)


def _give_streams_back() -> None:
    """A thread that leaves its mlx streams behind makes the process abort at its end."""
    try:
        import mlx.core as mx
    except ImportError:  # mlx has no backend here, which loading has told already
        return
    mx.clear_streams()


def _token(piece: Piece) -> Token:
    logprob = None
    if piece.logprobs is not None and piece.token is not None:
        logprob = cast("float", piece.logprobs[piece.token].item())
    return Token(piece.text, piece.token, piece.origin, logprob, piece.top_logprobs)


def _ended(run: Run, reason: str) -> Ended | Exception:
    if reason != "error":
        return Ended(reason, run.stats, run.faults)
    try:
        run.result()
    except Exception as error:  # noqa: BLE001 - whatever ended the run is told to the client
        return error
    return RuntimeError("the run failed")
