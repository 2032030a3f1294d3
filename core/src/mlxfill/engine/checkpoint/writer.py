"""The thread that writes checkpoints, beside the computing."""

from __future__ import annotations

import atexit
import threading
from contextlib import suppress
from queue import SimpleQueue
from typing import TYPE_CHECKING

from mlxfill.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mlxfill.engine.checkpoint.checkpoint import Checkpoint


class _Desk:
    """One thread of the process writes all checkpoints, in the order in which they came.

    One, since mlx keeps threads of its own, until the process ends, for each thread that it was
    ever used in.  No executor: Python may collect a run that nobody holds, which then stores its
    end, inside the ``submit`` of any executor, which would wait for itself.
    """

    def __init__(self) -> None:
        self._works: SimpleQueue[Callable[[], None] | None] = SimpleQueue()  # may nest its `put`
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._over = False

    def open(self) -> None:
        """Let there be a thread."""
        with self._starting:
            if self._thread is None and not self._over:
                self._thread = threading.Thread(
                    target=self._run, name="mlxfill checkpoint", daemon=True
                )
                self._thread.start()
                atexit.register(self._close)

    @property
    def is_here(self) -> bool:
        """Whether this is its thread."""
        return threading.current_thread() is self._thread

    @property
    def is_idle(self) -> bool:
        """Whether nobody ever wrote, or nobody will."""
        return self._thread is None or self._over

    def put(self, work: Callable[[], None]) -> None:
        """Let it be done, at once where the process ends."""
        if self._over:
            work()
        else:
            self._works.put(work)

    def _run(self) -> None:
        while (work := self._works.get()) is not None:
            work()

    def _close(self) -> None:
        self._over = True
        self._works.put(None)
        if self._thread is not None:
            self._thread.join()


_DESK = _Desk()


def wait_for_all() -> None:
    """Wait until everything that was handed over so far is written."""
    if not _DESK.is_idle:
        done = threading.Event()
        _DESK.put(done.set)
        done.wait()


class Writer:
    """Writes checkpoints to one file beside the computing; of those that wait, the newest.

    ``error``: why the newest one could not be written.
    """

    def __init__(self, path: Path) -> None:
        """Nothing is begun yet."""
        self._path = path
        self.error: CheckpointError | None = None
        self._guard = threading.RLock()
        self._waiting: Checkpoint | None = None
        self._written: threading.Event | None = None
        self._then: Callable[[], None] | None = None
        _DESK.open()

    def put(self, checkpoint: Checkpoint) -> None:
        """Hand over a checkpoint; does not wait for the disk."""
        with self._guard:
            self._waiting = checkpoint
            if self._written is not None:
                return
            self._written = threading.Event()
        _DESK.put(self._write)

    def close(self, then: Callable[[], None]) -> None:
        """Wait until the newest one is written, and call ``then``.

        Where Python collects a run in the very thread that is to write, nothing can be waited for:
        ``then`` is called later.
        """
        with self._guard:
            written = self._written
            if written is not None and _DESK.is_here:
                self._then = then
                return
        try:
            if written is not None:
                written.wait()
        finally:
            then()

    def _write(self) -> None:
        while (checkpoint := self._next()) is not None:
            try:
                checkpoint.write(self._path)
            except CheckpointError as error:
                self.error = error
            except Exception as error:  # noqa: BLE001 - the thread goes on for others
                why = f"{type(error).__name__}: {error}"
                self.error = CheckpointError(f"checkpoint {self._path} cannot be written: {why}")
            else:
                self.error = None
        then, self._then = self._then, None
        if then is not None:
            with suppress(OSError):
                then()

    def _next(self) -> Checkpoint | None:
        with self._guard:
            checkpoint, self._waiting = self._waiting, None
            written = self._written
            if checkpoint is None:
                self._written = None
        if checkpoint is None and written is not None:
            written.set()
        return checkpoint
