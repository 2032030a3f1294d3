"""Several requests at once: rows that join after their prefill and leave between rounds."""

from __future__ import annotations

from collections import deque
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from attrs import define, field
from mlx_lm.generate import wired_limit

from mlxfill.batch import MAX_ROWS
from mlxfill.batch.prefill_queue import PrefillQueue
from mlxfill.decode.loop import DecodeLoop
from mlxfill.decode.sequence import Ending
from mlxfill.errors import InputError
from mlxfill.loading.forked import check_process
from mlxfill.request.results import Piece
from mlxfill.rows.caches import layout
from mlxfill.rules import is_whole

if TYPE_CHECKING:
    from collections import abc
    from collections.abc import Callable, Generator, Iterable, Iterator

    from mlxfill.decode.profile import ModelProfile
    from mlxfill.decode.run import Run
    from mlxfill.decode.runstate import RunState
    from mlxfill.decode.sequence import Emitted, Sequence
    from mlxfill.model.reading import Stream
    from mlxfill.model.target import Target
    from mlxfill.model.team import RankGroup

    Pieces = list[tuple[Run, Piece]]


class Shared(Protocol):
    """What runs of one engine have in common; an ``Engine`` is one."""

    @property
    def target(self) -> Target:
        """The model."""

    @property
    def learnt(self) -> ModelProfile:
        """What was found out about it."""

    @property
    def mlx_stream(self) -> Stream:
        """Where it computes."""

    @property
    def team(self) -> RankGroup:
        """Who computes with it."""


@define(eq=False)
class ScheduledRun:
    """A run in the scheduler.  ``stage``: its tokens, where it goes all its way by itself."""

    run: Run
    stage: Generator[Any, None, None] | None = None
    table: Table | None = None
    gone: bool = False

    @property
    def state(self) -> RunState:
        """What the run is made of."""
        return self.run.state

    @property
    def sequence(self) -> Sequence:
        """The run in a loop."""
        return self.run.state.sequence


@define(eq=False)
class Table:
    """Runs whose caches have one layout, and the loop that decodes them."""

    seated: list[ScheduledRun] = field(factory=list)
    loop: DecodeLoop | None = None


class RowScheduler:
    """Drives several runs of one engine with one forward a round.

    ::

        rows = RowScheduler(engine)
        rows.add(engine.stream("first prompt"))
        rows.add(engine.stream("second prompt"))
        while len(rows):
            for run, piece in rows.round():
                ...                       # piece.finish_reason ends its run

    Each run says what it would say alone; some take turns (docs/rows.md).  One whose processor,
    sampler or callback raises ends with ``finish_reason`` ``"error"``, and its ``result()`` raises
    what was raised.  When a round itself raises (the model, Ctrl-C), all runs end.  One thread
    makes all calls.
    """

    def __init__(
        self,
        engine: Shared,
        *,
        max_rows: int = MAX_ROWS,
        clock: Callable[[], float] | None = None,
    ) -> None:
        """Nobody runs yet.

        :param max_rows: most runs that are decoded at once; more wait.
        :param clock: seconds, by which prompts are read for a while; None: those of the engine.
        :raises InputError: ``max_rows`` is no whole number above 0.
        """
        if not is_whole(max_rows) or max_rows < 1:
            message = f"max_rows must be 1 or more, not {max_rows!r}"
            raise InputError(message)
        self._target, self._learnt, self._stream = engine.target, engine.learnt, engine.mlx_stream
        self._max_rows = max_rows
        self._everyone: list[ScheduledRun] = []
        self._waiting: deque[ScheduledRun] = deque()
        clock = clock or engine.team.clock
        self._new_readers = partial(PrefillQueue, self._target, self._learnt, self._stream, clock)
        self._readers = self._new_readers()
        self._reading: dict[RunState, ScheduledRun] = {}
        self._tables: dict[object, Table] = {}
        self._staged: list[ScheduledRun] = []
        self._dropped: list[Run] = []
        self._in_round = False
        self._wired = ExitStack()

    def __len__(self) -> int:
        """Runs that have not ended."""
        return len(self._everyone)

    @property
    def active(self) -> int:
        """Runs that are being decoded."""
        return sum(len(table.seated) for table in self._tables.values()) + len(self._staged)

    @property
    def waiting(self) -> int:
        """Runs whose prefill has not begun."""
        return len(self._waiting)

    def add(self, run: Run) -> None:
        """A run that nobody has iterated yet; it joins as soon as there is room.

        :raises InputError: somebody has, or it is here already.
        """
        run.state.join_rows()
        if not len(self):  # on Metal the weights stay wired while runs are decoded
            stream: Any = self._stream
            self._wired.enter_context(wired_limit(self._target.model, [stream]))
        seated = ScheduledRun(run)
        self._everyone.append(seated)
        self._waiting.append(seated)

    def drop(self, run: Run) -> None:
        """A run leaves, as if cancelled; nothing happens if it has ended already.

        What a callback drops within a round leaves when that is over.
        """
        if self._in_round:
            self._dropped.append(run)
            return
        for seated in list(self._everyone):
            if seated.run is run:
                self._leave(seated)
                run.close()

    def close(self) -> None:
        """Every run leaves, whatever the end of one of them raises."""
        with ExitStack() as leaving:
            leaving.callback(self._wired.close)
            for seated in reversed(self._everyone):
                leaving.callback(self.drop, seated.run)

    # --- a round ------------------------------------------------------------------------------

    def round(self) -> Pieces:
        """A part of the prompts, then new tokens of every run: the pieces, in order.

        :raises InputError: a callback calls it within a round.
        """
        if self._in_round:
            raise InputError("a round is under way: callbacks cannot begin another")
        check_process()
        self._in_round = True
        try:
            out = self._pieces_of_all()
        except BaseException as error:
            self._abandon(error)
            raise
        finally:
            self._in_round = False
            dropped, self._dropped = self._dropped, []
        for run in dropped:
            self.drop(run)
        return out

    def _abandon(self, error: BaseException) -> None:
        """A round broke off: a token of any run may be in its caches that nobody has read."""
        everyone, self._everyone = self._everyone, []
        self._waiting.clear()
        self._readers, self._reading = self._new_readers(), {}
        self._tables, self._staged = {}, []
        self._wired.close()
        with ExitStack() as leaving:  # the last one that enters goes first
            for seated in reversed(everyone):
                leaving.callback(seated.state.abandon, error)
                if seated.stage is not None:
                    leaving.callback(seated.stage.close)

    def _pieces_of_all(self) -> Pieces:
        out = self._prefill()
        for table in list(self._tables.values()):
            out += self._round(table)
        for seated in list(self._staged):
            out += self._next(seated)
        return out

    def _switch(self, run: RunState) -> None:
        """Let what ``run`` was asked with be on; runs under different adapters share no table."""
        self._target.adapters.switch(run.options.adapters, run.forwarder)

    def _round(self, table: Table) -> Pieces:
        """New tokens of the runs at a table."""
        out: Pieces = []
        loop, expected = table.loop, self._waiting or self._reading
        if len(table.seated) == 1 and loop is not None and loop.batched and not expected:
            out += self._settle(table)
            if table.seated:
                loop.unbatch()
        return out + self._advance(table)

    def _advance(self, table: Table, *, pausing: bool = False) -> Pieces:
        """New tokens of the runs at a table by one forward."""
        out: Pieces = []
        loop = table.loop
        if loop is None or not table.seated:
            return out
        self._switch(table.seated[0].state)
        seats = {seated.sequence: seated for seated in table.seated}
        try:
            emissions = loop.round(pausing=pausing)
        except Exception as error:
            if loop.batched:  # nobody knows what the others' caches hold
                raise
            return self._failed(table.seated[0], error)
        for sequence, tokens in emissions:
            seated = seats[sequence]
            out += self._pieces(seated, _counted(seated.state, tokens), ended=sequence.ending)
        failures, loop.failures = loop.failures, {}
        for sequence, raised in failures.items():
            out += self._failed(seats[sequence], raised)
        return out

    def _next(self, seated: ScheduledRun) -> Pieces:
        """One token of a run that goes all its way by itself."""
        self._switch(seated.state)
        assert seated.stage is not None  # noqa: S101 - the caller made sure
        try:
            token = next(seated.stage, None)
        except Exception as error:  # noqa: BLE001 - a caller's processor may raise anything
            return self._failed(seated, error)
        if token is None:
            return self._pieces(seated, (), ended=seated.sequence.ending)
        return self._pieces(seated, [token])

    def _settle(self, table: Table) -> Pieces:
        """Bring every run at a table to where others may join; some may end on the way."""
        out: Pieces = []
        while table.seated and table.loop is not None and not table.loop.settled:
            out += self._advance(table, pausing=True)
        return out

    def _pieces(
        self, seated: ScheduledRun, tokens: Iterable[Emitted], *, ended: Ending | None = None
    ) -> Pieces:
        """Tokens as their callers see them; with its last one a run leaves."""
        run = seated.state
        out: Pieces = []
        try:
            for token in tokens:
                piece = run.take(token)
                if piece.finish_reason:
                    self._leave(seated)
                    run.finish()
                    return [*out, (seated.run, piece)]
                out.append((seated.run, piece))
            run.ending = run.ending or ended
            if run.ending is not None:
                self._leave(seated)
                out.append((seated.run, run.last()))
        except Exception as error:  # noqa: BLE001 - a caller's callback may raise anything
            return out + self._failed(seated, error)
        return out

    def _failed(self, seated: ScheduledRun, error: Exception) -> Pieces:
        self._leave(seated)
        seated.state.fail(error)
        return [(seated.run, Piece("", None, finish_reason="error"))]

    # --- joining and leaving --------------------------------------------------------------------

    def _prefill(self) -> Pieces:
        """Read prompts for a while; seat the runs whose prompt has been read."""
        out: Pieces = []
        self._admit()
        ready: list[ScheduledRun] = []
        for reader in self._readers.round():
            seated = self._reading.pop(reader.run)
            if reader.run.options.max_tokens == 0:  # the prompt's scores are all that is wanted
                reader.run.ending = reader.run.ending or Ending("length")
            if reader.error is not None:
                out += self._failed(seated, reader.error)
            elif reader.run.ending is not None:
                out += self._pieces(seated, (), ended=reader.run.ending)
            else:
                ready.append(seated)
        return out + self._seat(ready)

    def _admit(self) -> None:
        """Let runs begin as far as there is room; those without a common prefill go their way."""
        while self._waiting and self.active + len(self._reading) < self._max_rows:
            seated = self._waiting.popleft()
            run = seated.state
            unread = run.options.max_tokens == 0 and run.prefill.scores is None
            if run.method or run.keeper or run.past or unread:
                seated.stage = run.emitted()
                self._staged.append(seated)
            else:
                self._reading[run] = seated
                self._readers.add(run)

    def _seat(self, ready: abc.Sequence[ScheduledRun]) -> Pieces:
        """Give runs that have been prefilled their places."""
        out: Pieces = []
        groups: dict[object, list[ScheduledRun]] = {}
        for seated in ready:
            if not seated.state.forwarder.held:  # caches without a token have no layout yet
                out += self._first(seated)
            if not seated.gone:
                groups.setdefault(self._key(seated.state), []).append(seated)
        for seated in groups.pop(None, ()):  # these take turns
            out += self._seat_at(seated, [seated])
        for key, group in groups.items():
            out += self._seat_at(key, group)
        return out

    def _first(self, seated: ScheduledRun) -> Pieces:
        """The first token of a run that has its caches to itself."""
        run = seated.state
        if run.stats.generated_tokens:
            return []
        self._switch(run)
        try:
            tokens = run.first()
        except Exception as error:  # noqa: BLE001 - a caller's processor may raise anything
            return self._failed(seated, error)
        return self._pieces(seated, _counted(run, tokens), ended=run.sequence.ending)

    def _seat_at(self, key: object, group: abc.Sequence[ScheduledRun]) -> Pieces:
        """The first forward of one run is its own; several share it."""
        self._switch(group[0].state)
        out: Pieces = []
        table = self._tables.get(key)
        if table is None:
            table = Table()
        out += self._settle(table)
        self._tables[key] = table
        for seated in group:
            seated.table = table
            table.seated.append(seated)
        if len(table.seated) == 1:
            out += self._first(group[0])
            if group[0].gone:
                return out
        for seated in group:
            if not seated.state.stats.generated_tokens:
                seated.sequence.first = seated.state.prefilled
        joining = [seated.sequence for seated in group]
        if table.loop is None or not table.loop.sequences:
            stream = group[0].state.forwarder.stream
            table.loop = DecodeLoop(self._target, stream, joining)
        else:
            table.loop.join(joining)
        return out

    def _key(self, run: RunState) -> object:
        """What runs must have in common to share forwards; None: this one takes turns."""
        options, forwarder = run.options, run.forwarder
        if run.alone or forwarder.quantizes or forwarder.window.unsupported:
            return None
        key = layout(forwarder.caches)
        return None if key is None or self._learnt.no_rows() else (key, options.adapters)

    def _leave(self, seated: ScheduledRun) -> None:
        """Take a run out, wherever it is."""
        if seated.gone:
            return
        seated.gone = True
        self._everyone.remove(seated)
        if not len(self):
            self._wired.close()
        if seated.stage is not None:
            seated.stage.close()
        if self._reading.pop(seated.state, None) is not None:
            self._readers.drop(seated.state)
        if seated in self._waiting:
            self._waiting.remove(seated)
        if seated in self._staged:
            self._staged.remove(seated)
        table = seated.table
        if table is None:
            return
        table.seated.remove(seated)
        if table.loop is not None and seated.sequence in table.loop.sequences:
            table.loop.leave([seated.sequence], with_caches=seated.state.keeps_caches)
        if not table.seated:
            self._tables = {key: t for key, t in self._tables.items() if t is not table}


def _counted(run: RunState, tokens: Iterable[Emitted]) -> Iterator[Emitted]:
    """The same tokens, counted as they pass."""
    for token in tokens:
        run.count()
        yield token
