"""One request from prompt to last token."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, cast

import mlx.core as mx

from mlxfill.contracts import Event, Fault, Request
from mlxfill.engine.calls import tool_calls
from mlxfill.engine.loop import DecodeLoop, Emitted, Ending
from mlxfill.engine.results import Piece, PromptCache, Result, Stats
from mlxfill.engine.text import TextStream
from mlxfill.model.reading import ids, one_float

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
        self._notify, self._method = notify, method
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
        if self._method is not None:
            yield from self._by_method(self._method)
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
        started = time.perf_counter()
        first = self._prefill()
        if first is None:
            self.ending = Ending("cancelled")
            return
        mx.eval(first[0])
        decoding = time.perf_counter()
        self.stats.prefill_ms = (decoding - started) * 1e3
        self._progress(len(self.request.prompt_ids))
        try:
            for token in loop.run(first):
                self.stats.decode_ms = (time.perf_counter() - decoding) * 1e3
                yield token
            self.stats.decode_ms = (time.perf_counter() - decoding) * 1e3
        finally:
            self.ending = loop.ending

    def _prefill(self) -> tuple[mx.array, mx.array] | None:
        """The prompt through the target; the first sample, unread.  None when cancelled."""
        ids, options, forwarder = self.request.prompt_ids, self.options, self.forwarder
        start = self.stats.cached_tokens
        embeddings = options.input_embeddings
        snapshot = len(ids) - 1 if options.snapshot_at is None else options.snapshot_at
        self._progress(start)
        if self.drafting is not None:
            self.drafting.missed(ids[:start])
        self._snapshot(snapshot, start)
        chunks = forwarder.prefill(ids, start, stop_at=options.snapshot_at, embeddings=embeddings)
        for first, last in chunks:
            if self.drafting is not None:
                self.drafting.prefilled(ids[first:last], forwarder.last_taps)
            self._progress(last)
            self._snapshot(snapshot, last)
            if self._cancelled():
                return None
        tail = None if embeddings is None else embeddings[None, -1:]
        sample = forwarder.step(mx.array(ids[-1:]), ids, len(ids), tail)
        if self.drafting is not None:
            self.drafting.prompt_done(ids[-1], forwarder.last_taps)
        return sample

    def _snapshot(self, at: int, done: int) -> None:
        call = self.options.on_prefill_done
        if call is not None and done == at:
            import copy

            call(PromptCache(self.request.prompt_ids[:at], copy.deepcopy(self.forwarder.caches)))

    def _progress(self, done: int) -> None:
        if self.options.on_prefill_progress is not None:
            self.options.on_prefill_progress(done, len(self.request.prompt_ids))

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
            ending = self.ending or Ending("cancelled")
            reason = "stop" if text.stopped else ending.reason
            self._parts.append(rest)
            self.finish()
            yield Piece(rest, None, finish_reason=reason)
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

    def finish(self) -> None:
        """Settle the statistics; safe to call again."""
        stats, loop = self.stats, self._loop
        if self._closed:
            return
        self._closed = True
        if loop is not None:
            self.session.settle(0, 0)
            stats.generated_tokens = len(self.session.tokens) - stats.prompt_tokens
            stats.target_forwards = self.forwarder.forwards
            stats.rounds = loop.counters.rounds
            stats.fill, stats.spec = loop.statistics()
            known = [*self.session.tokens]
            if loop.ending is not None and loop.ending.eos is not None:
                known.append(loop.ending.eos)
            stats.cache_tokens = tuple(known[: self.forwarder.held])
        if self.drafting is not None:
            self.drafting.close()
        reason = self.ending.reason if self.ending else "cancelled"
        self._notify(Event("finish", {"finish_reason": reason, "stats": stats.as_dict()}))


def top(logprobs: mx.array, count: int) -> list[tuple[int, float]]:
    """The ``count`` most likely ids of a ``[V]`` row with their log-probabilities, best first."""
    count = min(count, logprobs.shape[0])
    best = mx.argpartition(-logprobs, kth=count - 1)[:count]
    values = cast("list[float]", logprobs[best].tolist())
    pairs = zip(ids(best), values, strict=True)
    return sorted(pairs, key=lambda pair: (-pair[1], pair[0]))
