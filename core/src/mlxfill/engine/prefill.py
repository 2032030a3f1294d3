"""The prompt through the target, before the first token is chosen."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from mlxfill.engine.results import PromptCache
from mlxfill.model.reading import one_id, row

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import mlx.core as mx

    from mlxfill.engine.drafting import Drafting
    from mlxfill.engine.forward import Forwarder
    from mlxfill.engine.options import Options
    from mlxfill.engine.prompt_store import Deposit


class Prefill:
    """Forwards what the caches do not hold yet; everyone who wants to hears of each chunk.

    ``tokens`` are the session's at first: unnamed ones of an mlx-lm ``prompt_cache``, then the
    prompt's.
    """

    def __init__(
        self,
        tokens: Sequence[int],
        options: Options,
        forwarder: Forwarder,
        drafting: Drafting | None,
        deposit: Deposit | None,
    ) -> None:
        """Nothing is forwarded yet."""
        self._tokens = tuple(tokens)
        self._options, self._forwarder = options, forwarder
        self._drafting, self._deposit = drafting, deposit

    def chunks(self) -> Iterator[None]:
        """Forward all but the last token; yields after each chunk."""
        forwarder, tokens = self._forwarder, self._tokens
        start = forwarder.held
        self._progress(start)
        if self._drafting is not None:
            self._drafting.missed(tokens[:start])
        self._snapshot(start)
        at = self._options.snapshot_at
        stop_at = None if at is None else at + forwarder.unnamed
        boundaries = self._deposit.boundaries if self._deposit else ()
        for end in (*boundaries, len(tokens) - 1):
            for first, last in forwarder.prefill(
                tokens[: end + 1],
                start,
                stop_at=stop_at,
                embeddings=self._options.input_embeddings,
            ):
                if self._drafting is not None:
                    self._drafting.prefilled(tokens[first:last], forwarder.last_taps)
                self._progress(last)
                self._snapshot(last)
                yield
            start = end
            if self._deposit is not None and end in boundaries:
                self._deposit.leave(tokens[:end])

    def last(self) -> tuple[int, mx.array]:
        """Forward the last token: the target's choice after it, and the ``[V]`` row behind it."""
        tokens, embeddings = self._tokens, self._options.input_embeddings
        tail = None if embeddings is None else embeddings[None, -1:]
        sample, logprobs = self._forwarder.step(row(tokens[-1:]), tokens, len(tokens), tail)
        return one_id(sample), logprobs

    def done(self) -> None:
        """The last token was forwarded, here or among other rows."""
        if self._drafting is not None:
            self._drafting.prompt_done(self._tokens[-1], self._forwarder.last_taps)
        self._progress(len(self._tokens))

    def _snapshot(self, done: int) -> None:
        """Hand out a copy of the caches when they hold exactly the wanted prefix."""
        options, unnamed = self._options, self._forwarder.unnamed
        prompt = self._tokens[unnamed:]
        at = len(prompt) - 1 if options.snapshot_at is None else options.snapshot_at
        if options.on_prefill_done is not None and done - unnamed == at:
            caches = copy.deepcopy(self._forwarder.caches)
            options.on_prefill_done(PromptCache(prompt[:at], caches, options.adapters))

    def _progress(self, done: int) -> None:
        if self._options.on_prefill_progress is not None:
            unnamed = self._forwarder.unnamed
            self._options.on_prefill_progress(done - unnamed, len(self._tokens) - unnamed)
