"""A generation at a boundary between two forwards, in memory or in a file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from attrs import frozen

from mlxfill.checkpoint import file
from mlxfill.checkpoint.content import checked
from mlxfill.checkpoint.lock import CheckpointLock
from mlxfill.errors import CheckpointError, reason

if TYPE_CHECKING:
    import os

    import mlx.core as mx


@frozen(eq=False)
class Checkpoint:
    """Everything that ``Engine.resume`` needs to go on as if nothing had happened.

    ``content`` is JSON-ready, ``arrays`` are caches, drafter state and token ids; neither
    changes while the generation goes on.  ``finished``: the reply is complete.
    """

    content: Mapping[str, Any]
    arrays: Mapping[str, mx.array]
    finished: bool = False

    @property
    def generated(self) -> int:
        """Tokens of the reply so far."""
        return int(self.arrays["tokens"].size)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a file: what stood there is replaced in one step.

        :raises CheckpointError: the file cannot be written, or another process has it.
        """
        with CheckpointLock(Path(path)):
            self.write(Path(path))

    def write(self, path: Path) -> None:
        """The same for who holds the lock already."""
        try:
            file.write(path, self.content, self.arrays, finished=self.finished)
        except Exception as error:  # of the disk, of mlx, for want of memory: later ones may do
            why = getattr(error, "strerror", None) or reason(error)
            raise CheckpointError(f"checkpoint {path} cannot be written: {why}") from error

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read it from a file, which stays as it is.

        :raises CheckpointError: the file is missing, damaged, foreign or of a newer version.
        """
        content, arrays = file.read(Path(path))
        try:
            ending = checked(content).ending
        except CheckpointError as error:
            raise CheckpointError(f"{path} holds no generation: {error}") from error
        missing = [name for name in ("prompt", "tokens") if name not in arrays]
        if missing:
            raise CheckpointError(f"{path} holds no generation: it has no {missing[0]}")
        return cls(content, arrays, finished=ending is not None)
