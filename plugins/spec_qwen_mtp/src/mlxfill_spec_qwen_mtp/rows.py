"""Rows of drafts by one head: several draft in common forwards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import mlx.core as mx

from mlxfill import BatchedCache, DraftCheckpoint, DrafterError, DraftSampling
from mlxfill_spec_qwen_mtp.batch import Batch
from mlxfill_spec_qwen_mtp.chain import Chain, Head
from mlxfill_spec_qwen_mtp.checkpoint import restored, saved

if TYPE_CHECKING:
    from mlxfill_spec_qwen_mtp.settings import HeldRows


class MtpRows:
    """Drafts for B >= 1 rows, as the contract ``mlxfill.DraftRows`` says.

    A single row has a cache of its own; others lie in a batch as soon as they draft together.
    """

    prefill_mode: Literal["tail-split", "full"] = "full"

    def __init__(
        self,
        namespace: str,
        head: Head,
        *,
        aux_layers: tuple[int, ...],
        most_drafts: int,
        held_rows: HeldRows,
    ) -> None:
        """No rows yet.  ``most_drafts``: a round's, what the head was trained for."""
        self.namespace, self.aux_layers = namespace, aux_layers
        self._head, self._most, self._held_rows = head, most_drafts, held_rows
        self._chains: list[Chain] = []
        self._batch: Batch | None = None

    @property
    def row_count(self) -> int:
        """Rows at present."""
        return len(self._chains)

    def prefill(self, tokens: mx.array, context: mx.array | None = None) -> None:
        """Forward ``[B, L]`` prompt ids, the last one too, with their states ``[B, L, H]``."""
        states = _needed(context)
        for row, chain in enumerate(self._chains):
            chain.take(tokens[row : row + 1], states[row : row + 1])
            if chain.cache:
                chain.catch_up()

    def draft(
        self, pending: Sequence[int | None], depth: int, positions: Sequence[int]
    ) -> mx.array:
        """Draft ``[B, d]`` ids on the device after each row's pending id, ``d <= depth``."""
        depth = min(depth, self._most)
        if depth < 1:
            return mx.zeros((self.row_count, 0), mx.int32)
        batch = self._batched()
        if batch is not None:
            return batch.draft(pending, depth, positions)
        rows = zip(self._chains, pending, positions, strict=True)
        none = mx.zeros((1, depth), mx.int32)
        drafts = [
            none if token is None else chain.draft(token, depth, position)
            for chain, token, position in rows
        ]
        return mx.concatenate(drafts) if len(drafts) > 1 else drafts[0]

    def commit(self, accepted: Sequence[Sequence[int]], context: mx.array | None = None) -> None:
        """End a round: the kept drafts of each row, then its next pending id."""
        states = _needed(context)
        if self._batch is not None:
            self._batch.settle(accepted, states)
            return
        for row, (chain, entered) in enumerate(zip(self._chains, accepted, strict=True)):
            if entered:
                chain.settle(entered, states[row : row + 1, : len(entered)])

    def consume(
        self, tokens: mx.array, lengths: Sequence[int], context: mx.array | None = None
    ) -> None:
        """Take the first ``lengths[b]`` of ``[B, L]`` ids that others chose, with their states."""
        states = _needed(context)
        for row, (chain, length) in enumerate(zip(self._chains, lengths, strict=True)):
            if length:
                chain.take(tokens[row : row + 1, :length], states[row : row + 1, :length])

    def append(
        self, samplings: Sequence[DraftSampling], checkpoints: Sequence[DraftCheckpoint | None]
    ) -> None:
        """Rows join at the end: restored ones, and an empty one for each None."""
        pairs = zip(samplings, checkpoints, strict=True)
        self._chains += [self._chain(sampling, checkpoint) for sampling, checkpoint in pairs]

    def keep(self, rows: Sequence[int]) -> None:
        """Only these rows remain, in this order."""
        batch = self._batch and self._batched()
        if batch is not None:
            batch.keep(rows)
        self._chains = [self._chains[row] for row in rows]
        if batch is not None and len(rows) == 1:
            self._part()

    def capture(self, row: int) -> DraftCheckpoint:
        """The row's cache with everything processed in it, and the state that waits."""
        chain = self._chains[row]
        if not chain.cache and self._batch is not None:
            chain = self._batch.apart(row)
        return saved(self.namespace, chain)

    def close(self) -> None:
        """Release the caches."""
        self._chains, self._batch = [], None

    def _batched(self) -> Batch | None:
        """The batch with all rows in it; None where they cannot draft together."""
        apart = [chain for chain in self._chains if chain.cache]
        if not all(BatchedCache.fits(chain.cache) for chain in apart):
            self._part()
        elif self._batch is not None or len(apart) > 1:
            self._batch = self._batch or Batch(self._head)
            if apart:
                self._batch.join(apart)
        return self._batch

    def _part(self) -> None:
        """Every row has a cache of its own again."""
        if self._batch is not None:
            inside = iter(range(len(self._batch.chains)))
            self._chains = [
                chain if chain.cache else self._batch.apart(next(inside)) for chain in self._chains
            ]
            self._batch = None

    def _chain(self, sampling: DraftSampling, checkpoint: DraftCheckpoint | None) -> Chain:
        cache = self._head.module.new_cache()
        chain = Chain(self._head, sampling, cache, self._held_rows)
        if checkpoint is not None:
            state = restored(checkpoint, self.namespace, cache)
            if state is not None:
                chain.resume(checkpoint.processed_tokens, state)
        return chain


def _needed(context: mx.array | None) -> mx.array:
    if context is None:
        raise DrafterError("an MTP head needs the target's hidden states with every token")
    return context
