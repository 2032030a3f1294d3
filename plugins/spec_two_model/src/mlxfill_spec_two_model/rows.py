"""Rows of drafts by one model.  Each row has a cache of its own and drafts on its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import mlx.core as mx

from mlxfill_spec_two_model.chain import Chain, DraftModel
from mlxfill_spec_two_model.checkpoint import restore, saved

if TYPE_CHECKING:
    from mlxfill import DraftCheckpoint, DraftSampling


class TwoModelRows:
    """Drafts for B >= 1 rows, as the contract ``mlxfill.DraftRows`` says.

    Rows share nothing but weights, so each accepts, joins and leaves as if it were alone.
    """

    tap_layers: tuple[int, ...] = ()
    prefill_mode: Literal["tail-split", "full"] = "tail-split"

    def __init__(
        self,
        namespace: str,
        model: DraftModel,
        sampling: DraftSampling,
        checkpoints: Sequence[DraftCheckpoint | None],
    ) -> None:
        self.namespace = namespace
        self._model, self._sampling = model, sampling
        self._chains: list[Chain] = []
        self.append(checkpoints)

    @property
    def row_count(self) -> int:
        """Rows at present."""
        return len(self._chains)

    def prefill(self, tokens: mx.array, context: mx.array | None = None) -> None:  # noqa: ARG002
        """Forward ``[B, L]`` prompt ids, all but the last prompt token."""
        for row, chain in enumerate(self._chains):
            chain.take(tokens[row : row + 1])
            chain.catch_up()

    def draft(self, pending: Sequence[int], depth: int, positions: Sequence[int]) -> mx.array:
        """Draft ``[B, depth]`` ids on the device after each row's pending id."""
        if depth < 1:
            return mx.zeros((self.row_count, 0), mx.int32)
        rows = zip(self._chains, pending, positions, strict=True)
        drafts = [chain.draft(token, depth, position) for chain, token, position in rows]
        return mx.concatenate(drafts) if len(drafts) > 1 else drafts[0]

    def commit(
        self,
        accepted: Sequence[Sequence[int]],
        context: mx.array | None = None,  # noqa: ARG002 - no taps
    ) -> None:
        """End a round: the kept drafts of each row, then its next pending id."""
        for chain, entered in zip(self._chains, accepted, strict=True):
            chain.settle(entered)

    def consume(
        self,
        tokens: mx.array,
        lengths: Sequence[int],
        context: mx.array | None = None,  # noqa: ARG002 - no taps
    ) -> None:
        """Take the first ``lengths[b]`` of ``[B, L]`` ids that others chose."""
        for row, (chain, length) in enumerate(zip(self._chains, lengths, strict=True)):
            if length:
                chain.take(tokens[row : row + 1, :length])

    def append(self, checkpoints: Sequence[DraftCheckpoint | None]) -> None:
        """Rows join at the end: restored ones, and an empty one for each None."""
        self._chains += [self._chain(checkpoint) for checkpoint in checkpoints]

    def keep(self, rows: Sequence[int]) -> None:
        """Only these rows remain, in this order."""
        self._chains = [self._chains[row] for row in rows]

    def capture(self, row: int) -> DraftCheckpoint:
        """The row's cache with everything processed in it."""
        chain = self._chains[row]
        chain.catch_up()
        return saved(self.namespace, chain.processed, chain.cache)

    def close(self) -> None:
        """Release the caches."""
        self._chains = []

    def _chain(self, checkpoint: DraftCheckpoint | None) -> Chain:
        cache = self._model.new_cache()
        if checkpoint is not None:
            restore(checkpoint, self.namespace, cache)
        chain = Chain(self._model, self._sampling, cache)
        chain.processed = 0 if checkpoint is None else checkpoint.processed_tokens
        return chain
