"""Several runs of one engine, one after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mlxfill import Engine, Piece
    from mlxfill.engine.run import Run


class Rows:
    """Runs in the order in which they came."""

    def __init__(self, engine: Engine, max_rows: int) -> None:
        self.engine, self.max_rows = engine, max_rows
        self._runs: list[Run] = []

    def add(self, run: Run) -> None:
        """Let a run take part."""
        self._runs.append(run)

    def drop(self, run: Run) -> None:
        """Stop a run."""
        self._runs.remove(run)
        run.close()

    def round(self) -> Iterator[tuple[Run, Piece]]:
        """The next pieces."""
        if not self._runs:
            return
        run = self._runs[0]
        piece = next(run)
        if piece.finish_reason is not None:
            self._runs.pop(0)
        yield run, piece
        if piece.finish_reason is not None:
            run.close()
