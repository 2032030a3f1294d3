"""One process at a time on one checkpoint."""

from __future__ import annotations

import gc
import os
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Self

from mlxfill.checkpoint.writer import WRITER_THREAD
from mlxfill.errors import CheckpointError
from mlxfill.whole import sweep

try:
    import fcntl

    def _take(handle: int) -> None:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)

except ImportError:  # Windows
    import msvcrt

    def _take(handle: int) -> None:
        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]


class CheckpointLock:
    """Held from ``__init__`` to ``release``, on a file beside the checkpoint.

    The checkpoint itself is replaced with every write, so it cannot carry the lock.  The system
    lets go of it when the process ends, however it ends.
    """

    def __init__(self, path: Path) -> None:
        """Take the lock for the checkpoint ``path``.

        :raises CheckpointError: another process has it, its folder cannot be written, or it is no
            regular file: the first write would put one in the place of a device or a pipe.
        """
        try:
            _check_kind(path)
            self.path = path.with_name(path.name + ".lock")
            try:
                handle = self._held()
            except BlockingIOError:
                gc.collect()  # a run of ours that was dropped half-way holds it until it is found
                WRITER_THREAD.wait()  # or until its last checkpoint is written
                handle = self._held()
        except BlockingIOError as error:
            raise CheckpointError(f"{path} is in use by another process") from error
        except OSError as error:
            reason = error.strerror or error
            raise CheckpointError(f"checkpoint {path} cannot be written: {reason}") from error
        self._let_go = weakref.finalize(self, _release, self.path, handle, os.getpid())
        sweep(path)

    def _held(self) -> int:
        """A handle that has the lock.  Raises ``BlockingIOError`` where somebody else has it."""
        while (handle := self._opened()) is None:
            pass
        return handle

    def _opened(self) -> int | None:
        """A locked handle; None when the file went away meanwhile: its lock keeps nobody out."""
        handle = os.open(self.path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
        try:
            _take(handle)
            ours = os.fstat(handle)
            if os.path.samestat(ours, self.path.stat()):
                return handle
        except FileNotFoundError:
            pass
        except PermissionError as error:  # what Windows says of a lock that is taken
            os.close(handle)
            raise BlockingIOError(*error.args) from error
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)
        return None

    def release(self) -> None:
        """Let go.  Safe to call twice; happens by itself when nobody has the lock any more."""
        self._let_go()

    def __enter__(self) -> Self:
        """The lock itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Release it."""
        self.release()


def _check_kind(path: Path) -> None:
    if path.exists() and not path.is_file():
        kind = "a folder" if path.is_dir() else "no regular file"
        raise CheckpointError(f"checkpoint {path} cannot be written: is {kind}")


def _release(path: Path, handle: int, process: int) -> None:
    if os.name == "posix" and os.getpid() == process:  # a fork of it holds nothing of its own
        with suppress(OSError):  # removed while held, so that a waiting process notices
            path.unlink()
    os.close(handle)
