"""The prompt through the target, before the first token is chosen."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import mlx.core as mx

from mlxfill.decode.prompt_scores import CHUNK, PromptScores
from mlxfill.model.reading import one_id, row
from mlxfill.request.results import PromptCache

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from mlxfill.forward.runner import TargetRunner
    from mlxfill.prefix_cache.store import CacheRecorder
    from mlxfill.proposals.drafting import Drafting
    from mlxfill.request.options import Options


class Prefill:
    """Forwards what the caches do not hold yet; everyone who wants to hears of each chunk.

    ``tokens`` are the session's at first: unnamed ones of an mlx-lm ``prompt_cache``, then the
    prompt's.  ``scores``: of its tokens, where they were asked for.
    """

    def __init__(
        self,
        tokens: Sequence[int],
        options: Options,
        forwarder: TargetRunner,
        drafting: Drafting | None,
        deposit: CacheRecorder | None,
    ) -> None:
        """Nothing is forwarded yet."""
        self._tokens = tuple(tokens)
        self._options, self._forwarder = options, forwarder
        self._drafting, self._deposit = drafting, deposit
        wanted = options.prompt_logprobs
        self.scores = None if wanted is None else PromptScores(wanted)
        at = options.snapshot_at
        snapshots = () if at is None else (at + forwarder.unnamed,)
        self._stops = (*snapshots, *(deposit.boundaries if deposit else ()))

    @property
    def left(self) -> int:
        """Tokens to be forwarded before the last one."""
        return len(self._tokens) - 1 - self._forwarder.held

    @property
    def ahead(self) -> int:
        """Tokens of the next chunk: up to where somebody wants the caches, 0 at the end."""
        held, step = self._forwarder.held, self._options.prefill_step_size
        step = step if self.scores is None else min(step, CHUNK)
        stops = (stop - held for stop in self._stops if stop > held)
        size: int = min(self.left, step, *stops)
        return size

    def begin(self) -> None:
        """Tell everyone what the caches hold already."""
        held = self._forwarder.held
        self._progress(held)
        if self._drafting is not None:
            self._drafting.missed(self._tokens[:held])
        self._snapshot(held)

    def chunk(self) -> tuple[int, ...]:
        """The ids of the next chunk."""
        held = self._forwarder.held
        return self._tokens[held : held + self.ahead]

    def read(self) -> Generator[None, None, None]:
        """Forward the next chunk, a step for each layer."""
        ids, embeddings = self.chunk(), self._options.input_embeddings
        if embeddings is not None:
            first = self._forwarder.held - self._forwarder.unnamed
            embeddings = embeddings[None, first : first + len(ids)]
        held = self._forwarder.held
        logits = yield from self._forwarder.prefill(ids, embeddings)
        if self.scores is not None:
            with mx.stream(self._forwarder.stream):
                self.scores.take(logits[0], self._tokens[held + 1 : held + 1 + len(ids)])
        self.took(len(ids))

    def took(self, count: int) -> None:
        """``count`` tokens were forwarded, here or among other rows: tell everyone."""
        held = self._forwarder.held
        if self._drafting is not None:
            aux_states = self._forwarder.last_aux_states
            self._drafting.prefilled(self._tokens[held - count : held], aux_states)
        self._progress(held)
        self._snapshot(held)
        if self._deposit is not None and held in self._deposit.boundaries:
            self._deposit.leave(self._tokens[:held])

    def last(self) -> tuple[int, mx.array]:
        """Forward the last token: the target's choice after it, and the ``[V]`` row behind it."""
        tokens, embeddings = self._tokens, self._options.input_embeddings
        tail = None if embeddings is None else embeddings[None, -1:]
        sample, (logprobs,) = self._forwarder.step(row(tokens[-1:]), [tokens], 0, tail)
        return one_id(sample), logprobs

    def done(self) -> None:
        """The last token was forwarded, here or among other rows."""
        if self._drafting is not None:
            self._drafting.prompt_done(self._tokens[-1], self._forwarder.last_aux_states)
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
