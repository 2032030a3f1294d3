"""The thread that writes checkpoints, beside the computing."""

from __future__ import annotations

import atexit
import threading
import time
from collections import deque
from queue import SimpleQueue
from typing import TYPE_CHECKING

from mlxfill.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class WriterThread:
    """One thread of the process writes all checkpoints, in the order in which they came.

    One, since mlx keeps threads of its own, until the process ends, for each thread that it was
    ever used in.  No executor: Python may collect a run that nobody holds, which then stores its
    end, inside the ``submit`` of any executor, which would wait for itself.
    """

    def __init__(self) -> None:
        self._works: SimpleQueue[Callable[[], None] | None] = SimpleQueue()  # may nest its `put`
        self._starting = threading.RLock()
        self._thread: threading.Thread | None = None
        self._over = False

    def open(self) -> None:
        """Let there be a thread, also where Ctrl-C came while one was to begin."""
        with self._starting:
            if not (self._over or self._runs):
                self._thread = threading.Thread(
                    target=self._run, name="mlxfill checkpoint", daemon=True
                )
                self._thread.start()

    @property
    def _runs(self) -> bool:
        """A process that is forked has no thread but the one that forked it."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def is_here(self) -> bool:
        """Whether this is its thread."""
        return threading.current_thread() is self._thread

    def put(self, work: Callable[[], None]) -> None:
        """Let it be done, at once where the process ends."""
        if self._over:
            work()
        else:
            self._works.put(work)

    def wait(self) -> None:
        """Wait until everything that was handed over so far is written."""
        if self._runs and not self._over:
            done = threading.Event()
            self.put(done.set)
            done.wait()

    def _run(self) -> None:
        while (work := self._works.get()) is not None:
            work()

    def close(self) -> None:
        """The process ends: wait until everything is written."""
        self._over = True
        self._works.put(None)
        if self._thread is not None and self._runs:
            self._thread.join()


WRITER_THREAD = WriterThread()
atexit.register(WRITER_THREAD.close)


class Writer:
    """Writes checkpoints to one file beside the computing; of those that wait, the newest.

    ``error``: why the newest one could not be written; ``took_s``: what it took of a processor.
    """

    def __init__(self, path: Path) -> None:
        """Nothing is begun yet."""
        self._path = path
        self.error: CheckpointError | None = None
        self.took_s = 0.0
        self._writing = False
        self._waiting: deque[Callable[[Path], None]] = deque(maxlen=1)
        WRITER_THREAD.open()

    @property
    def busy(self) -> bool:
        """Whether one is being written, or waits for that."""
        return self._writing or bool(self._waiting)

    def put(self, write: Callable[[Path], None]) -> None:
        """Hand over what writes a checkpoint to a file; does not wait for the disk."""
        self._waiting.append(write)
        WRITER_THREAD.put(self._write)

    def close(self, then: Callable[[], None]) -> None:
        """Wait until the newest one is written, and ``then`` was called.

        Where Python collects a run in the very thread that is to write, or Ctrl-C comes, nothing is
        waited for: ``then``, which raises nothing, is called later.
        """
        WRITER_THREAD.put(self._write)  # again: Ctrl-C may have come within `put`
        WRITER_THREAD.put(then)
        if not WRITER_THREAD.is_here:
            WRITER_THREAD.wait()

    def _write(self) -> None:
        self._writing, started = True, time.thread_time()
        try:
            self._write_newest()
        finally:
            self.took_s = time.thread_time() - started
            self._writing = False

    def _write_newest(self) -> None:
        try:
            write = self._waiting.pop()
        except IndexError:  # it was written in the place of an older one
            return
        try:
            write(self._path)
        except CheckpointError as error:
            self.error = error
        except Exception as error:  # noqa: BLE001 - the thread goes on for others
            why = f"{type(error).__name__}: {error}"
            self.error = CheckpointError(f"checkpoint {self._path} cannot be written: {why}")
        else:
            self.error = None
