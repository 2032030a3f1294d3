"""One request from prompt to last token."""

from __future__ import annotations

import copy
import time
from typing import TYPE_CHECKING, cast

import mlx.core as mx
from mlx_lm.generate import wired_limit

from mlxfill.contracts import Event, Fault, Request
from mlxfill.engine.calls import tool_calls
from mlxfill.engine.loop import DecodeLoop, Emitted, Ending
from mlxfill.engine.results import Piece, PromptCache, Result, Stats
from mlxfill.engine.text import TextStream
from mlxfill.model.reading import ids as ids_of
from mlxfill.model.reading import one_float, row

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from mlxfill.contracts import GenerationMethod
    from mlxfill.engine.drafting import Drafting
    from mlxfill.engine.forward import Forwarder
    from mlxfill.engine.gate import Gate
    from mlxfill.engine.options import Options
    from mlxfill.engine.session import Session


class Run:
    """An iterator of ``Piece``s; ``result()`` runs it to its end.

    May be left at any piece: ``stats.cache_tokens`` then still names exactly what the
    caches hold.  Made by ``Engine.stream``.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - the parts of one request, made by the engine
        self,
        request: Request,
        options: Options,
        forwarder: Forwarder,
        session: Session,
        drafting: Drafting | None,
        gate: Gate,
        faults: list[Fault],
        *,
        cached: int,
        method: GenerationMethod | None = None,
        notify: Callable[[Event], None],
    ) -> None:
        """Nothing is computed before the first piece is asked for."""
        self.request, self.options = request, options
        self.forwarder, self.session, self.drafting, self.gate = forwarder, session, drafting, gate
        self.faults = faults
        self.stats = Stats(
            prompt_tokens=len(request.prompt_ids),
            cached_tokens=cached,
            seed=request.sampling.seed or 0,
        )
        self.ending: Ending | None = None
        self.tokens: list[int] = []
        self.origins: list[str] = []
        self._parts: list[str] = []
        self._token_logprobs: list[float] = []
        self._tops: list[list[tuple[int, float]]] = []
        self.method = method
        self._notify = notify
        self._pieces = self._make_pieces()
        self._loop: DecodeLoop | None = None
        self._closed = False

    # --- as an iterator ---------------------------------------------------------------

    def __iter__(self) -> Iterator[Piece]:
        """The run itself."""
        return self

    def __next__(self) -> Piece:
        """The next piece."""
        return next(self._pieces)

    def close(self) -> None:
        """Stop here.  Called by itself when the run ends or is dropped."""
        self._pieces.close()
        self.finish()

    def result(self) -> Result:
        """Run to the end and collect everything."""
        for _ in self:
            pass
        text = "".join(self._parts)
        options = self.options
        keep = (
            PromptCache(self.stats.cache_tokens, self.forwarder.caches)
            if options.keep_cache
            else None
        )
        return Result(
            text=text,
            tokens=self.tokens,
            origins=self.origins,
            finish_reason=self.ending.reason if self.ending else "cancelled",
            stats=self.stats,
            faults=self.faults,
            tool_calls=tool_calls(self.request.tokenizer, text, self.request.tools),
            logprobs=self._token_logprobs if options.logprobs else None,
            top_logprobs=self._tops if options.top_logprobs else None,
            cache=keep,
        )

    # --- stages -----------------------------------------------------------------------

    def emitted(self) -> Generator[Emitted, None, None]:
        """Tokens without text: prefill, then the decode loop.  EOS is left in ``ending``."""
        if self.options.max_tokens == 0:
            self.ending = Ending("length")
            return
        if self.method is not None:
            yield from self._by_method(self.method)
            return
        self._loop = loop = DecodeLoop(
            self.forwarder,
            self.session,
            self.gate,
            self.drafting,
            want_logprobs=self.options.logprobs or self.options.top_logprobs > 0,
            append_chunk=self.options.append_chunk,
            cancelled=self._cancelled,
        )
        # On Metal the weights stay wired while a request runs; elsewhere this does nothing.
        with wired_limit(self.forwarder.target.model, [self.forwarder.stream]):
            yield from self._decode(loop)

    def _decode(self, loop: DecodeLoop) -> Iterator[Emitted]:
        started = time.perf_counter()
        first = self._prefill()
        if first is None:
            self.ending = Ending("cancelled")
            return
        mx.eval(first[0])
        decoding = time.perf_counter()
        self.stats.prefill_ms = (decoding - started) * 1e3
        self._progress(len(self.session.tokens))
        try:
            for token in loop.run(first):
                self.stats.decode_ms = (time.perf_counter() - decoding) * 1e3
                self.stats.generated_tokens += 1
                yield token
            self.stats.decode_ms = (time.perf_counter() - decoding) * 1e3
        finally:
            self.ending = loop.ending

    def _prefill(self) -> tuple[mx.array, mx.array] | None:
        """The prompt through the target; the first sample, unread.  None when cancelled."""
        options, forwarder, unnamed = self.options, self.forwarder, self.forwarder.unnamed
        ids = tuple(self.session.tokens)
        start = forwarder.held
        embeddings = options.input_embeddings
        self._progress(start)
        if self.drafting is not None:
            self.drafting.missed(ids[:start])
        self._snapshot(start)
        stop_at = None if options.snapshot_at is None else options.snapshot_at + unnamed
        for first, last in forwarder.prefill(ids, start, stop_at=stop_at, embeddings=embeddings):
            if self.drafting is not None:
                self.drafting.prefilled(ids[first:last], forwarder.last_taps)
            self._progress(last)
            self._snapshot(last)
            if self._cancelled():
                return None
        tail = None if embeddings is None else embeddings[None, -1:]
        sample = forwarder.step(row(ids[-1:]), ids, len(ids), tail)
        if self.drafting is not None:
            self.drafting.prompt_done(ids[-1], forwarder.last_taps)
        return sample

    def _snapshot(self, done: int) -> None:
        """Hand out a copy of the caches when they hold exactly the wanted prefix."""
        options, ids = self.options, self.request.prompt_ids
        at = len(ids) - 1 if options.snapshot_at is None else options.snapshot_at
        if options.on_prefill_done is not None and done - self.forwarder.unnamed == at:
            caches = copy.deepcopy(self.forwarder.caches)
            options.on_prefill_done(PromptCache(ids[:at], caches))

    def _progress(self, done: int) -> None:
        if self.options.on_prefill_progress is not None:
            total = len(self.request.prompt_ids)
            self.options.on_prefill_progress(done - self.forwarder.unnamed, total)

    def _cancelled(self) -> bool:
        return self.options.cancel is not None and self.options.cancel.is_set()

    def _by_method(self, method: GenerationMethod) -> Iterator[Emitted]:
        """Tokens of another way to generate, under the same limits."""
        budget = self.session.view.budget
        for token, origin in method.generate(self.request):
            if token in self.request.eos_ids:
                self.ending = Ending("stop", token)
                return
            self.session.add([token])
            budget -= 1
            yield Emitted(token, origin, None)
            if budget <= 0:
                self.ending = Ending("length")
                return
            if self._cancelled():
                self.ending = Ending("cancelled")
                return
        self.ending = Ending("stop")

    # --- pieces ------------------------------------------------------------------------

    def _make_pieces(self) -> Generator[Piece, None, None]:
        text = TextStream(self.request.tokenizer, self.options.stop)
        stopped = False
        source = self.emitted()
        try:
            for token in source:
                segment = text.add(token.token)
                piece = self._piece(token, segment)
                if text.stopped:
                    stopped = True
                    self.ending = Ending("stop")
                    piece.finish_reason = "stop"
                self._record(piece)
                yield piece
                if stopped:
                    return
            rest = text.finish()
            if text.stopped or self.ending is None:
                self.ending = Ending("stop" if text.stopped else "cancelled")
            self._parts.append(rest)
            self.finish()
            yield Piece(rest, None, finish_reason=self.ending.reason)
        finally:
            source.close()
            if stopped:
                self.ending = Ending("stop")
            self.finish()

    def _piece(self, token: Emitted, segment: str) -> Piece:
        options = self.options
        piece = Piece(segment, token.token, token.origin)
        if token.logprobs is not None:
            if options.logprobs:
                piece.logprobs = token.logprobs
            if options.top_logprobs:
                piece.top_logprobs = top(token.logprobs, options.top_logprobs)
        return piece

    def _record(self, piece: Piece) -> None:
        token = cast("int", piece.token)
        self.tokens.append(token)
        self.origins.append(piece.origin)
        self._parts.append(piece.text)
        if piece.logprobs is not None:
            self._token_logprobs.append(one_float(piece.logprobs[token]))
        if piece.top_logprobs is not None:
            self._tops.append(piece.top_logprobs)

    def _known(self) -> list[int]:
        """The session, and the EOS that ended it."""
        eos = self._loop.ending.eos if self._loop and self._loop.ending else None
        return [*self.session.tokens, *(() if eos is None else (eos,))]

    def fill_caches(self) -> None:
        """Let the caches hold every token of the session, the last one and EOS included."""
        missing = self._known()[self.forwarder.held :]
        if missing:
            self.forwarder.append(missing)

    def finish(self) -> None:
        """Settle the statistics; safe to call again."""
        stats, loop = self.stats, self._loop
        if self._closed:
            return
        self._closed = True
        if loop is not None:
            self.session.settle(0, 0)
            stats.target_forwards = self.forwarder.forwards
            stats.rounds = first_rounds(loop.counters.rounds, stats.generated_tokens)
            stats.fill, stats.spec = loop.statistics()
            stats.cache_tokens = tuple(self._known()[self.forwarder.unnamed : self.forwarder.held])
        if self.drafting is not None:
            self.drafting.close()
        reason = self.ending.reason if self.ending else "cancelled"
        self._notify(Event("finish", {"finish_reason": reason, "stats": stats.as_dict()}))


def first_rounds(rounds: list[int], emitted: int) -> list[int]:
    """The rounds that ``emitted`` tokens came from: a burst may have been left in its middle."""
    kept: list[int] = []
    for count in rounds:
        if emitted <= 0:
            break
        kept.append(min(count, emitted))
        emitted -= count
    return kept


def top(logprobs: mx.array, count: int) -> list[tuple[int, float]]:
    """The ``count`` most likely ids of a ``[V]`` row with their log-probabilities, best first."""
    count = min(count, logprobs.shape[0])
    best = mx.argpartition(-logprobs, kth=count - 1)[:count]
    values = cast("list[float]", logprobs[best].tolist())
    pairs = zip(ids_of(best), values, strict=True)
    return sorted(pairs, key=lambda pair: (-pair[1], pair[0]))
