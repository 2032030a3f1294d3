"""Files that a command is to write when its work is done: tried before the work begins."""

from __future__ import annotations

import os
import tempfile
from errno import EISDIR, ENOENT, ENOTDIR
from pathlib import Path

from mlxfill.errors import InputError

STDOUT = "-"


def check_output(option: str, path: str | os.PathLike[str], *, folder: bool = False) -> None:
    """Find out whether a file can be written, without a trace.

    A device or a pipe will do: what it is told goes where it goes.

    :param option: ``--report``, for the error.
    :param folder: ``path`` is a folder for files, which is made with those above it.
    :raises InputError: it cannot; the message says why.
    """
    file = Path(path)
    if str(file) == STDOUT:
        raise InputError(f"{option} -: standard output is taken; give a file (./- is one)")
    try:
        if folder:
            _try_folder(_innermost(file))
        else:
            _try_file(file)
    except OSError as error:
        raise InputError(f"{option} {file}: {error.strerror or error}") from error


def _innermost(folder: Path) -> Path:
    """What is there already of a folder's path."""
    return next(each for each in (folder, *folder.absolute().parents) if each.exists())


def _try_folder(folder: Path) -> None:
    """Raise ``OSError`` where no file can be made."""
    if not folder.is_dir():
        raise NotADirectoryError(ENOTDIR, f"{folder} is no folder")
    tempfile.TemporaryFile(dir=folder).close()


def _try_file(file: Path) -> None:
    """Raise ``OSError`` where the file cannot be written."""
    if file.is_dir():
        raise IsADirectoryError(EISDIR, "is a folder")
    if not file.exists():
        if not file.parent.is_dir():
            raise FileNotFoundError(ENOENT, f"there is no folder {file.parent}")
        _try_folder(file.parent)
    elif file.is_file():
        file.open("ab").close()
