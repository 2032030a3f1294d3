"""Rows of drafts by one head.  Each row has a cache of its own and drafts on its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import mlx.core as mx

from mlxfill import DraftCheckpoint, DrafterError, DraftSampling
from mlxfill_spec_qwen_mtp.chain import Chain, Head
from mlxfill_spec_qwen_mtp.checkpoint import restored, saved

if TYPE_CHECKING:
    from mlxfill_spec_qwen_mtp.settings import HeldRows


class MtpRows:
    """Drafts for B >= 1 rows, as the contract ``mlxfill.DraftRows`` says.

    Rows share nothing but weights, so each accepts, joins and leaves as if it were alone.
    """

    prefill_mode: Literal["tail-split", "full"] = "full"

    def __init__(  # noqa: PLR0913 - what a provider knows
        self,
        namespace: str,
        head: Head,
        sampling: DraftSampling,
        checkpoints: Sequence[DraftCheckpoint | None],
        *,
        tap_layers: tuple[int, ...],
        most_drafts: int,
        held_rows: HeldRows,
    ) -> None:
        """``most_drafts``: drafts a round at most, what the head was trained for."""
        self.namespace, self.tap_layers = namespace, tap_layers
        self._head, self._sampling = head, sampling
        self._most, self._held_rows = most_drafts, held_rows
        self._chains: list[Chain] = []
        self.append(checkpoints)

    @property
    def row_count(self) -> int:
        """Rows at present."""
        return len(self._chains)

    def prefill(self, tokens: mx.array, context: mx.array | None = None) -> None:
        """Forward ``[B, L]`` prompt ids, the last one too, with their states ``[B, L, H]``."""
        states = _needed(context)
        for row, chain in enumerate(self._chains):
            chain.take(tokens[row : row + 1], states[row : row + 1])
            chain.catch_up()

    def draft(self, pending: Sequence[int], depth: int, positions: Sequence[int]) -> mx.array:
        """Draft ``[B, d]`` ids on the device after each row's pending id, ``d <= depth``."""
        depth = min(depth, self._most)
        if depth < 1:
            return mx.zeros((self.row_count, 0), mx.int32)
        rows = zip(self._chains, pending, positions, strict=True)
        drafts = [chain.draft(token, depth, position) for chain, token, position in rows]
        return mx.concatenate(drafts) if len(drafts) > 1 else drafts[0]

    def commit(self, accepted: Sequence[Sequence[int]], context: mx.array | None = None) -> None:
        """End a round: the kept drafts of each row, then its next pending id."""
        states = _needed(context)
        for row, (chain, entered) in enumerate(zip(self._chains, accepted, strict=True)):
            chain.settle(entered, states[row : row + 1, : len(entered)])

    def consume(
        self, tokens: mx.array, lengths: Sequence[int], context: mx.array | None = None
    ) -> None:
        """Take the first ``lengths[b]`` of ``[B, L]`` ids that others chose, with their states."""
        states = _needed(context)
        for row, (chain, length) in enumerate(zip(self._chains, lengths, strict=True)):
            if length:
                chain.take(tokens[row : row + 1, :length], states[row : row + 1, :length])

    def append(self, checkpoints: Sequence[DraftCheckpoint | None]) -> None:
        """Rows join at the end: restored ones, and an empty one for each None."""
        self._chains += [self._chain(checkpoint) for checkpoint in checkpoints]

    def keep(self, rows: Sequence[int]) -> None:
        """Only these rows remain, in this order."""
        self._chains = [self._chains[row] for row in rows]

    def capture(self, row: int) -> DraftCheckpoint:
        """The row's cache with everything processed in it, and the state that waits."""
        return saved(self.namespace, self._chains[row])

    def close(self) -> None:
        """Release the caches."""
        self._chains = []

    def _chain(self, checkpoint: DraftCheckpoint | None) -> Chain:
        cache = self._head.module.new_cache()
        chain = Chain(self._head, self._sampling, cache, self._held_rows)
        if checkpoint is not None:
            state = restored(checkpoint, self.namespace, cache)
            if state is not None:
                chain.resume(checkpoint.processed_tokens, state)
        return chain


def _needed(context: mx.array | None) -> mx.array:
    if context is None:
        raise DrafterError("an MTP head needs the target's hidden states with every token")
    return context
