"""A request that was opened, as its caller holds it."""

from __future__ import annotations

from inspect import GEN_RUNNING, getgeneratorstate
from typing import TYPE_CHECKING, Never

from mlxfill.decode.collected import collected
from mlxfill.errors import InputError
from mlxfill.loading.forked import check_process

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from mlxfill.contracts import Fault, Request
    from mlxfill.decode.prompt_scores import PromptScores
    from mlxfill.decode.runstate import RunState
    from mlxfill.decode.sequence import Emitted
    from mlxfill.request.options import Options
    from mlxfill.request.results import Piece, Result, Stats


class Run:
    """An iterator of ``Piece``s; ``result()`` runs it to its end.

    May be left at any piece: ``stats.cache_tokens`` then still names exactly what the
    caches hold.  Made by ``Engine.stream``.
    """

    def __init__(self, state: RunState) -> None:
        """Nothing is computed before the first piece is asked for."""
        self.state = state
        # Held here and not by the state, which the generator holds: a dropped run ends at once.
        self._tokens: Generator[Emitted, None, None] | None = None

    @property
    def request(self) -> Request:
        """What plugins saw."""
        return self.state.request

    @property
    def options(self) -> Options:
        """What it was asked with."""
        return self.state.options

    @property
    def stats(self) -> Stats:
        """Grows while it runs."""
        return self.state.stats

    @property
    def prompt_scores(self) -> PromptScores | None:
        """Log-probabilities of the prompt's tokens, once they are read, where asked for."""
        return self.state.prefill.scores

    @property
    def faults(self) -> Sequence[Fault]:
        """Grows while it runs."""
        return self.state.faults

    @property
    def error(self) -> Exception | None:
        """What was raised and ended it."""
        return self.state.error

    def __iter__(self) -> Iterator[Piece]:
        """The run itself."""
        return self

    def __next__(self) -> Piece:
        """The next piece.

        :raises InputError: a ``RowScheduler`` has the run: its rounds bring the pieces.
        """
        state = self.state
        if state.closed:
            raise StopIteration
        if state.among_rows:
            raise InputError("this run is among rows: rows.round() brings its pieces")
        check_process()
        state.forwarder.adapt()
        if self._tokens is None:
            self._tokens = state.emitted()
        try:
            token = next(self._tokens, None)
            piece = state.last() if token is None else state.take(token)
        except BaseException as error:
            state.broken(error)
            raise
        if piece.finish_reason:
            self._leave()
        return piece

    def _leave(self) -> None:
        try:
            if self._tokens is not None:
                self._tokens.close()
        finally:
            self.state.over()

    def close(self) -> None:
        """Stop here.  Called by itself when the run ends or is dropped.

        From one of its own callbacks: stop at the next boundary.
        """
        if self._tokens is not None and getgeneratorstate(self._tokens) == GEN_RUNNING:
            self.state.brake.closing = True
            return
        self.state.cancel()
        self._leave()

    def result(self) -> Result:
        """Run to the end and collect everything.

        :raises Exception: what was raised and ended it.
        """
        while not self.state.closed:
            next(self, None)
        if self.error is not None:
            raise self.error
        return collected(self.state)

    def request_checkpoint(self) -> None:
        """Take a checkpoint at the next boundary.

        :raises InputError: the request says neither ``checkpoint`` nor ``on_checkpoint``.
        """
        if self.state.keeper is None:
            raise InputError("give checkpoint=FILE or on_checkpoint=... with the request")
        self.state.keeper.request()

    def __reduce__(self) -> Never:
        """There is one of it.  A ``TypeError`` for whoever copies it or sends it elsewhere."""
        raise TypeError("a run cannot be copied: hand over its result(), or a checkpoint of it")

    def __del__(self) -> None:
        """Who watches requests hears of the end of one that was dropped."""
        self._leave()
