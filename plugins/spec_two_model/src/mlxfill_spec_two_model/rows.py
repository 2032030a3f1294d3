"""Rows of drafts by one model: several draft in common forwards where their caches allow it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import mlx.core as mx

from mlxfill import BatchedCache
from mlxfill_spec_two_model.batch import Batch
from mlxfill_spec_two_model.chain import Chain, DraftModel
from mlxfill_spec_two_model.checkpoint import restore, saved

if TYPE_CHECKING:
    from mlxfill import DraftCheckpoint, DraftSampling
    from mlxfill_spec_two_model.settings import TwoModelSettings


class TwoModelRows:
    """Drafts for B >= 1 rows, as the contract ``mlxfill.DraftRows`` says.

    A single row has a cache of its own, of any kind; so have several in recurrent or sliding
    caches.  Other rows lie in a batch as soon as they draft together.
    """

    aux_layers: tuple[int, ...] = ()
    prefill_mode: Literal["tail-split", "full"] = "tail-split"

    def __init__(self, namespace: str, model: DraftModel, settings: TwoModelSettings) -> None:
        """No rows yet."""
        self.namespace = namespace
        self._model, self._settings = model, settings
        self._chains: list[Chain] = []
        self._batch: Batch | None = None

    @property
    def row_count(self) -> int:
        """Rows at present."""
        return len(self._chains)

    def prefill(self, tokens: mx.array, context: mx.array | None = None) -> None:  # noqa: ARG002
        """Forward ``[B, L]`` prompt ids, all but the last prompt token."""
        for row, chain in enumerate(self._chains):
            chain.take(tokens[row : row + 1])
            if chain.cache:
                chain.catch_up()

    def draft(
        self, pending: Sequence[int | None], depth: int, positions: Sequence[int]
    ) -> mx.array:
        """Draft ``[B, depth]`` ids on the device after each row's pending id."""
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

    def commit(
        self,
        accepted: Sequence[Sequence[int]],
        context: mx.array | None = None,  # noqa: ARG002 - no aux layers
    ) -> None:
        """End a round: the kept drafts of each row, then its next pending id."""
        if self._batch is not None:
            self._batch.settle(accepted)
            return
        for chain, entered in zip(self._chains, accepted, strict=True):
            if entered:
                chain.settle(entered)

    def consume(
        self,
        tokens: mx.array,
        lengths: Sequence[int],
        context: mx.array | None = None,  # noqa: ARG002 - no aux layers
    ) -> None:
        """Take the first ``lengths[b]`` of ``[B, L]`` ids that others chose."""
        for row, (chain, length) in enumerate(zip(self._chains, lengths, strict=True)):
            if length:
                chain.take(tokens[row : row + 1, :length])

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
        """The row's cache with everything processed in it."""
        chain = self._chains[row]
        if not chain.cache and self._batch is not None:
            chain = self._batch.apart(row)
        chain.catch_up()
        return saved(self.namespace, chain.processed, chain.cache)

    def close(self) -> None:
        """Release the caches."""
        self._chains, self._batch = [], None

    def _batched(self) -> Batch | None:
        """The batch with all rows in it; None where they cannot draft together."""
        apart = [chain for chain in self._chains if chain.cache]
        if not all(BatchedCache.fits(chain.cache) for chain in apart):
            self._part()
        elif self._batch is not None or len(apart) > 1:
            self._batch = self._batch or Batch(self._model)
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
        changes = {} if sampling.sampling.greedy else self._settings.sampling_changes
        sampling = sampling.evolved(**changes) if changes else sampling
        cache = self._model.new_cache()
        if checkpoint is not None:
            restore(checkpoint, self.namespace, cache)
        chain = Chain(self._model, sampling, cache)
        chain.processed = 0 if checkpoint is None else checkpoint.processed_tokens
        return chain
