"""One request from prompt to last token."""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING, Any, Protocol

from attrs import frozen
from mlx_lm.generate import wired_limit

from mlxfill.contracts import Event, Fault, Request
from mlxfill.decode.loop import DecodeLoop
from mlxfill.decode.method import run_method
from mlxfill.decode.prefill import Prefill
from mlxfill.decode.reply import Reply
from mlxfill.decode.sequence import Emitted, Ending, Sequence
from mlxfill.decode.stop import StopControl
from mlxfill.errors import InputError
from mlxfill.request.results import SAMPLED, Piece, Stats

if TYPE_CHECKING:
    from collections import abc
    from collections.abc import Callable, Generator, Iterable, Iterator

    import mlx.core as mx

    from mlxfill.contracts import GenerationMethod
    from mlxfill.forward.runner import TargetRunner
    from mlxfill.policy.plan import Gate
    from mlxfill.prefix_cache.store import CacheRecorder
    from mlxfill.proposals.drafting import Drafting
    from mlxfill.proposals.session import Session
    from mlxfill.request.options import Options


@frozen
class Past:
    """The reply that a resumed run begins with.

    ``ending``: None while there is more to come.  ``logprobs`` and ``top_logprobs``: one a token,
    where they were asked for.
    """

    tokens: abc.Sequence[Emitted]
    ending: Ending | None
    logprobs: abc.Sequence[float]
    top_logprobs: abc.Sequence[list[tuple[int, float]]]


class Keeper(Protocol):
    """Who takes the checkpoints of a run."""

    def begin(self, generated: int) -> None:
        """The run begins with so many tokens of its reply."""

    def due(self, generated: int) -> bool:
        """Whether to pause after so many tokens."""

    def request(self) -> None:
        """Take one at the next boundary."""

    def take(self, run: RunState) -> None:
        """Store the run, which stands between two forwards."""

    def finish(self, run: RunState) -> None:
        """The run is over."""


class RunState:
    """What a run is made of, and the stages that it goes through.

    Knows nothing of the ``Run`` that its caller holds: whoever drops that closes it at once, and
    its caches are free.  ``closed``: nothing more comes; ``among_rows``: a ``RowScheduler`` has it.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - the parts of one request, made by the engine
        self,
        request: Request,
        options: Options,
        forwarder: TargetRunner,
        session: Session,
        drafting: Drafting | None,
        gate: Gate,
        faults: list[Fault],
        *,
        deposit: CacheRecorder | None = None,
        deciding: Iterable[str] = (),
        method: GenerationMethod | None = None,
        notify: Callable[[Event], None],
    ) -> None:
        """Nothing is computed before the first piece is asked for.

        :param deposit: keeps copies of its caches for other requests.
        :param deciding: plugins that decide tokens of this request.
        """
        self.request, self.options = request, options
        self.forwarder, self.session, self.drafting = forwarder, session, drafting
        self.faults = faults
        self.stats = Stats(
            prompt_tokens=len(request.prompt_ids),
            cached_tokens=forwarder.held - forwarder.unnamed,
            seed=request.sampling.seed or 0,
        )
        self.ending: Ending | None = None
        self.error: Exception | None = None
        self.reply = Reply(request, options)
        self.method = method
        self.deciding = frozenset(deciding)
        self.past: Past | None = None
        self.brake = StopControl(options.cancel, session)
        self.keeper: Keeper | None = None
        self._deposit = deposit
        self.prefill = Prefill(session.tokens, options, forwarder, drafting, deposit)
        self.sequence = Sequence(
            forwarder,
            session,
            gate,
            drafting,
            want_logprobs=options.logprobs or options.top_logprobs > 0,
            append_chunk=options.append_chunk,
            cancelled=self.brake.stops,
            paused=self.brake.pauses,
        )
        self._notify = notify
        self._started = self._decoding = 0.0
        self._begun = self.closed = self.among_rows = False

    @property
    def keeps_caches(self) -> bool:
        """Whether somebody wants the caches after the end."""
        return self.options.keep_cache or self._deposit is not None

    def keep(self, keeper: Keeper) -> None:
        """Let ``keeper`` take its checkpoints, before anything is computed."""
        self.keeper, self.brake.due = keeper, keeper.due

    # --- stages -----------------------------------------------------------------------

    def emitted(self) -> Generator[Emitted, None, None]:
        """Tokens without text: prefill, then the decode loop.  EOS is left in ``ending``."""
        if self.options.max_tokens == 0:
            self._read_only()
            return
        if self.method is not None:
            yield from self._by_method(self.method)
            return
        # On Metal the weights stay wired while a request runs; elsewhere this does nothing.
        stream: Any = self.forwarder.stream  # mlx-lm says Stream, and gives it the other kind
        with wired_limit(self.forwarder.target.model, [stream]):
            if self.past is None:
                for _ in self.prefilling():
                    pass
            else:
                yield from self._again(self.past)
            try:
                for token in self.first():
                    self.count()
                    yield token
                loop = DecodeLoop(self.forwarder.target, stream, [self.sequence])
                while self._goes_on(loop):
                    for _, tokens in loop.round():
                        for token in tokens:
                            self.count()
                            yield token
                self._clock()
            finally:
                self.ending = self.ending or self.sequence.ending

    def _read_only(self) -> None:
        """No token is wanted, but perhaps the scores of the prompt."""
        if self.prefill.scores is not None:
            for _ in self.prefilling():
                pass
        self.ending = self.ending or Ending("length")

    def join_rows(self) -> None:
        """From here on somebody else drives it.

        :raises InputError: somebody did already.
        """
        if self._begun or self.among_rows:
            raise InputError("a run joins rows once, before anyone has read from it")
        self.among_rows = True

    @property
    def alone(self) -> bool:
        """Whether something about it cannot be had of forwards that others share."""
        options = self.options
        return (
            options.prompt_cache is not None
            or options.input_embeddings is not None
            or options.phase_times
            or self.forwarder.watched
        )

    def prefilling(self) -> Generator[None, None, None]:
        """The prompt but its last token through the target, layer by layer of each chunk."""
        self.begin()
        while self.prefill.left and self.ending is None:
            with closing(self.prefill.read()) as chunk:
                for _ in chunk:
                    self.heed_cancel()
                    if self.ending is not None:
                        return
                    yield
            self.heed_cancel()

    def begin(self) -> None:
        """From here on time counts."""
        self._started = time.perf_counter()
        self._begun = True
        self.prefill.begin()

    def heed_cancel(self) -> None:
        """End here if nobody wants the rest."""
        if self.brake.cancelled():
            self.ending = Ending("cancelled")

    def first(self) -> list[Emitted]:
        """The first token, none after a cancelled prefill; rounds of a loop come next."""
        if self.ending is not None or self.past is not None:
            return []
        return self.prefilled(*self.prefill.last())

    def prefilled(self, sample: int, logprobs: mx.array) -> list[Emitted]:
        """The last token of the prompt went through the target, which chose ``sample``."""
        self.prefill.done()
        self._decoding = time.perf_counter()
        self.stats.prefill_ms = (self._decoding - self._started) * 1e3
        return self.sequence.emit([sample], SAMPLED, [logprobs])

    def _again(self, past: Past) -> Iterator[Emitted]:
        """The tokens that a checkpoint brought, to be gone on from."""
        self._begun = True
        for token in past.tokens:
            self.stats.generated_tokens += 1
            yield token
        self.ending = past.ending
        if self.ending is None and self.session.budget <= 0:
            self.ending = Ending("length")
        if self.drafting is not None and past.ending is None:
            self.drafting.missed(self.session.tokens[: self.forwarder.held])
        self._decoding = time.perf_counter() - self.stats.decode_ms / 1e3

    def _goes_on(self, loop: DecodeLoop) -> bool:
        """Whether there is another round; takes a checkpoint where one is due."""
        sequence, brake = self.sequence, self.brake
        while self.ending is None and sequence.ending is None:
            if not (loop.settled and brake.pauses()):
                return True
            if self.keeper is None or brake.pausing:
                return False
            self.keeper.take(self)
            loop.rested()
            if brake.cancelled():
                self.ending = Ending("cancelled")
        return False

    def count(self) -> None:
        """A token is on its way to the caller."""
        self._clock()
        self.stats.generated_tokens += 1

    def _clock(self) -> None:
        self.stats.decode_ms = (time.perf_counter() - self._decoding) * 1e3

    def _by_method(self, method: GenerationMethod) -> Iterator[Emitted]:
        """Tokens of another way to generate, under the same limits."""
        self._begun, self._decoding = True, time.perf_counter()
        tokens = run_method(method, self.request, self.sequence, self.forwarder.target.vocab_size)
        with closing(tokens):
            for token in tokens:
                self.count()
                yield token
        self._clock()
        self.ending = self.ending or self.sequence.ending

    # --- pieces ------------------------------------------------------------------------

    def take(self, token: Emitted) -> Piece:
        """A token as the caller sees it; the last one if it completes a stop string."""
        piece = self.reply.add(token)
        if self.reply.stopped:
            self.ending = Ending("stop")
            piece.finish_reason = "stop"
        return piece

    def last(self) -> Piece:
        """What is left to say when no more tokens come."""
        rest = self.reply.finish()
        if self.reply.stopped or self.ending is None:
            self.ending = Ending("stop" if self.reply.stopped else "cancelled")
        self.finish()
        return Piece(rest, None, finish_reason=self.ending.reason)

    def broken(self, error: BaseException) -> None:
        """Its tokens broke off with ``error``: nobody knows what the caches hold."""
        self.forwarder.forget()
        self.error = error if isinstance(error, Exception) else None
        self.ending = Ending("error" if self.error else "cancelled")
        self.over()

    def over(self) -> None:
        """Nobody reads any more of its tokens."""
        if self.reply.stopped:
            self.ending = Ending("stop")
        self.finish()

    def fail(self, error: Exception) -> None:
        """End here: something that belongs to this request alone raised ``error``."""
        self.error, self.ending = error, Ending("error")
        self.finish()

    def cancel(self) -> None:
        """Nobody wants the rest; ``finish`` comes next."""
        self.ending = self.ending or Ending("cancelled")

    def abandon(self, error: BaseException) -> None:
        """End here: a forward broke off, nobody knows what the caches hold."""
        self.forwarder.forget()
        if isinstance(error, Exception):
            self.fail(error)
        else:
            self.cancel()
            self.finish()

    def _known(self) -> list[int]:
        """The session, and the EOS that ended it."""
        eos = self.sequence.ending.eos if self.sequence.ending else None
        return [*self.session.tokens, *(() if eos is None else (eos,))]

    @property
    def only_told(self) -> bool:
        """Whether the reply was complete when it was stored: nothing is computed for it."""
        return self.past is not None and self.past.ending is not None

    def revive(self, past: Past) -> None:
        """Stand where a stored run stood, whose tokens but the newest the caches hold."""
        self.past = past
        self.session.add([emitted.token for emitted in past.tokens])
        self.reply.logprobs = list(past.logprobs)
        self.reply.top_logprobs = list(past.top_logprobs)
        if self.keeper is not None:
            self.keeper.begin(len(past.tokens))

    def fill_caches(self) -> None:
        """Let the caches hold every token of the session, the last one and EOS included."""
        missing = self._known()[self.forwarder.held :]
        if missing:
            self.forwarder.append(missing)

    def finish(self) -> None:
        """Settle the statistics; safe to call again."""
        stats, sequence = self.stats, self.sequence
        if self.closed:
            return
        self.closed = True
        try:
            forwarder = self.forwarder
            stats.cache_tokens = tuple(self._known()[forwarder.unnamed : forwarder.held])
            if self._begun:
                self.session.close()
                stats.target_forwards = forwarder.forwards - sequence.counters.without_tokens
                stats.rounds = sequence.counters.rounds_of(stats.generated_tokens)
                stats.fill, stats.spec = sequence.statistics()
            if self.keeper is not None:
                self.keeper.finish(self)
            told = self.only_told or self.ending is None or self.ending.reason == "error"
            if self._deposit is not None and self._begun and not told:
                self._deposit.leave(stats.cache_tokens)
        finally:
            self._release()

    def _release(self) -> None:
        """Nothing more comes, whatever the caller's callback made of it."""
        if self.options.adapters is not None:
            self.forwarder.target.adapters.leave(self.forwarder)
        if self.drafting is not None:
            self.drafting.close(self.stats.generated_tokens)
        reason = self.ending.reason if self.ending else "cancelled"
        data = {"finish_reason": reason, "stats": self.stats.as_dict()}
        self._notify(Event("finish", data))
