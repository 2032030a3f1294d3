"""Requests on their way to their answers, several at once."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from mlxfill.batch import MAX_ROWS
from mlxfill.batch.scheduler import RowScheduler
from mlxfill.errors import InputError, MlxfillError
from mlxfill.plugins.faults import one_line

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from mlxfill.cli.batch.lines import Line
    from mlxfill.cli.batch.progress import Tally
    from mlxfill.cli.batch.record import Printed, Record
    from mlxfill.decode.run import Run
    from mlxfill.engine import Engine


class Answers:
    """Lets an engine answer lines; each answer is recorded as soon as it is whole."""

    def __init__(
        self, engine: Engine, record: Record | Printed, tally: Tally, given: Mapping[str, Any]
    ) -> None:
        """``given``: keywords of ``Engine.stream`` for every line."""
        self._engine, self._record, self._tally, self._given = engine, record, tally, given
        self._running: dict[Run, Line] = {}

    def check(self, lines: Sequence[Line]) -> None:
        """Raise ``InputError`` that names the first line that the engine would refuse."""
        for line in lines:
            try:
                self._engine.check(line.prompt, tools=line.tools, **self._options(line))
            except MlxfillError as error:
                raise InputError(f"{line.where}: {error}") from error

    def rounds(self, lines: Sequence[Line], max_rows: int | None) -> Generator[None]:
        """Answer the lines, a round of all rows at a time.  Left early, the rest stays undone."""
        most, waiting = max_rows or MAX_ROWS, deque(lines)
        rows = RowScheduler(self._engine, max_rows=most)
        try:
            while waiting or len(rows):
                # Opened only when there is room: a request that waits costs its line, no more.
                while waiting and len(rows) < most:
                    self._open(rows, waiting.popleft())
                self._round(rows)
                yield
        finally:
            rows.close()

    def _options(self, line: Line) -> dict[str, Any]:
        return {**self._given, **line.options}

    def _open(self, rows: RowScheduler, line: Line) -> None:
        try:
            run = self._engine.stream(line.prompt, tools=line.tools, **self._options(line))
        except MlxfillError as error:
            self._failed(line, error)
            return
        self._running[run] = line
        rows.add(run)

    def _round(self, rows: RowScheduler) -> None:
        self._tally.rows = len(rows)
        for run, piece in rows.round():
            self._tally.tokens += piece.token is not None
            if piece.finish_reason is not None:
                self._end(run)

    def _end(self, run: Run) -> None:
        line = self._running.pop(run)
        if run.error is not None:
            self._failed(line, run.error)
            return
        self._record.add(line, run.result().as_dict())
        self._tally.done += 1

    def _failed(self, line: Line, error: Exception) -> None:
        why = str(error) if isinstance(error, MlxfillError) else one_line(error)
        self._record.add(line, {"error": why})
        self._tally.done += 1
        self._tally.failed += 1
