"""The answers of a batch: one line for each request, on the disk as soon as it has ended."""

from __future__ import annotations

import json
import os
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Self

from mlxfill.checkpoint.lock import CheckpointLock
from mlxfill.cli.terminal.outputs import STDOUT
from mlxfill.errors import CheckpointError, InputError, MlxfillError
from mlxfill.rules import is_whole
from mlxfill.whole import replacing

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from mlxfill.cli.batch.lines import Line

BEGINNING = b'{"index": '


def opened(path: Path, lines: Sequence[Line]) -> Record | Printed:
    """Where the answers to ``lines`` go.  Raises ``InputError``."""
    return Printed() if str(path) == STDOUT else Record(path, lines)


class Printed:
    """Standard output in the place of a file: nothing is answered there already."""

    def __init__(self) -> None:
        self.name = "standard output"
        self.done: set[int] = set()

    def add(self, line: Line, answer: Mapping[str, Any]) -> None:
        """Print an answer."""
        sys.stdout.write(_text(line, answer))
        sys.stdout.flush()

    def __enter__(self) -> Self:
        """The same."""
        return self

    def __exit__(self, *_: object) -> None:
        """Standard output stays open."""


class Record:
    """An open ``--out`` file, which no other process writes meanwhile.  A context manager.

    ``done``: indices of the requests that it answers.  ``name``: what people call it.
    """

    def __init__(self, path: Path, lines: Sequence[Line]) -> None:
        """The answers to ``lines`` in ``path``.

        A last line that is not whole is dropped, and so are requests that failed: they are to be
        done again.

        :raises InputError: it holds something else, is in use, or cannot be written.
        """
        self._path, self.name = path, str(path)
        if path.is_dir():
            raise InputError(f"--out {path}: is a folder")
        if path.exists() and not path.is_file():
            raise InputError(
                f"--out {path}: is no regular file, which could be read again; -: standard output"
            )
        with ExitStack() as stack:
            try:
                stack.enter_context(CheckpointLock(path))
                self.done = _kept(path, lines)
                self._file = stack.enter_context(path.open("ab", buffering=0))
            except (CheckpointError, OSError) as error:
                raise InputError(f"--out {path}: {_reason(error)}") from error
            self._open = stack.pop_all()

    def add(self, line: Line, answer: Mapping[str, Any]) -> None:
        """Write an answer and wait for the disk.

        :raises MlxfillError: the disk takes no more.
        """
        left = _text(line, answer).encode()
        try:
            while left:  # a disk that is nearly full takes a part
                left = left[self._file.write(left) :]
            os.fsync(self._file.fileno())
        except OSError as error:
            raise MlxfillError(f"--out {self._path}: {_reason(error)}") from error
        self.done.add(line.index)

    def __enter__(self) -> Self:
        """The record itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file and let others have it."""
        self._open.close()


def _text(line: Line, answer: Mapping[str, Any]) -> str:
    return json.dumps({**line.name, **answer}, ensure_ascii=False) + "\n"


def _reason(error: BaseException) -> str:
    """Why a file cannot be had; the lock's words are about checkpoints."""
    cause = error.__cause__ if isinstance(error, CheckpointError) else error
    if isinstance(cause, BlockingIOError):
        return "is in use by another process"
    return (isinstance(cause, OSError) and cause.strerror) or str(error)


def _kept(path: Path, lines: Sequence[Line]) -> set[int]:
    """The requests that ``path`` answers; what it holds beside those answers is removed."""
    if not path.exists():
        return set()
    whole = path.read_bytes()
    *written, tail = whole.split(b"\n")
    if tail and not (tail.startswith(BEGINNING) or BEGINNING.startswith(tail)):
        raise InputError(_foreign(path, len(written) + 1))
    done: set[int] = set()
    kept = []
    for number, text in enumerate(written, 1):
        index, failed = _read(path, number, text, lines)
        if index in done:
            raise InputError(f"--out {path}, line {number}: answers request {index} again")
        if not failed:
            done.add(index)
            kept.append(text + b"\n")
    if b"".join(kept) != whole:
        with replacing(path) as file:
            file.write(b"".join(kept))
    return done


def _read(path: Path, number: int, text: bytes, lines: Sequence[Line]) -> tuple[int, bool]:
    """The request that a line answers, and whether it failed."""
    try:
        answer = json.loads(text)
        index, digest = answer["index"], answer["digest"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise InputError(_foreign(path, number)) from None
    if not is_whole(index) or not 0 <= index < len(lines) or digest != lines[index].digest:
        raise InputError(
            f"--out {path}, line {number}: answers a request with another prompt, option or model:"
            " give another file"
        )
    failed = isinstance(answer.get("error"), str)
    if not failed and not _whole(answer):
        raise InputError(_foreign(path, number))
    return index, failed


def _whole(answer: Mapping[str, Any]) -> bool:
    """Whether the answer is there, and not only the name of its request."""
    tokens = answer.get("tokens")
    return (
        isinstance(answer.get("text"), str)
        and isinstance(tokens, list)
        and all(map(is_whole, tokens))
    )


def _foreign(path: Path, number: int) -> str:
    return f"--out {path}, line {number}: is no answer of a batch: give another file"
