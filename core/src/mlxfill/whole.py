"""Files that are written whole or not at all."""

from __future__ import annotations

import glob
import os
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Iterator

_PART = ".part"
"""How the name of a file ends that is being written."""
_CHANCE = "?" * 8
"""What ``mkstemp`` puts before it."""


@contextmanager
def replacing(path: Path, *, mode: int = 0o600) -> Iterator[BinaryIO]:
    """A file to be written, read and sought in, that is put in the place of ``path`` at the end.

    Whenever the process or the machine ends, ``path`` is the old file or the new one, both whole.
    A block that raises leaves the old one, and no other file.

    :param path: no symbolic link, else the link is replaced.
    :param mode: permissions where no file was; a new file has those of the one that it replaces.
    :raises OSError: it cannot be written.
    """
    handle, name = tempfile.mkstemp(_PART, f".{path.name}.", path.parent)
    part = Path(name)
    try:
        with os.fdopen(handle, "w+b") as file:
            yield file
            file.flush()
            os.fsync(handle)
        if path.exists():
            shutil.copymode(path, part)
        else:
            part.chmod(mode)
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    _sync(path.parent)


def sweep(path: Path) -> None:
    """Remove what processes left that ended while they replaced ``path``; none may do so now."""
    for part in path.parent.glob(f".{glob.escape(path.name)}.{_CHANCE}{_PART}"):
        part.unlink(missing_ok=True)


def _sync(folder: Path) -> None:
    """Wait until a new name is on the disk, where folders can be opened for that."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
