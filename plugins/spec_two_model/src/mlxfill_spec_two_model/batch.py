"""Rows that draft in common forwards of the draft model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import mlx.core as mx

from mlxfill import BatchedCache

if TYPE_CHECKING:
    from mlxfill_spec_two_model.chain import Chain, DraftModel


class Batch:
    """Chains whose caches lie in one batch: row b is that of ``chains[b]``."""

    def __init__(self, model: DraftModel) -> None:
        """No rows."""
        self._model, self._cache = model, BatchedCache()
        self.chains: list[Chain] = []
        self._drafting: list[bool] = []
        self._fed = 0

    def join(self, chains: Sequence[Chain]) -> None:
        """Chains give up caches that hold tokens."""
        self._cache.join([chain.cache for chain in chains])
        for chain in chains:
            chain.cache = []
        self.chains += chains

    def keep(self, rows: Sequence[int]) -> None:
        """Only these rows remain, in this order."""
        self._cache.keep(rows)
        self.chains = [self.chains[row] for row in rows]

    def apart(self, row: int) -> Chain:
        """A copy of a row with a cache of its own."""
        return self.chains[row].apart(self._cache.extract(row))

    def draft(
        self, pending: Sequence[int | None], depth: int, positions: Sequence[int]
    ) -> mx.array:
        """``[B, depth]`` ids; rows without a pending id are computed in vain and kept as they are.

        The ids that wait for a cache are forwarded first, all rows' at once.
        """
        self._drafting = [token is not None for token in pending]
        for chain, token in zip(self.chains, pending, strict=True):
            if token is not None:
                chain.take(mx.array([[token]]))
        counts = [
            chain.waiting if drafts else 0
            for chain, drafts in zip(self.chains, self._drafting, strict=True)
        ]
        window = [
            chain.waited() if count else mx.zeros((1, 0), mx.int32)
            for chain, count in zip(self.chains, counts, strict=True)
        ]
        size = max(counts)
        ids = mx.concatenate([mx.pad(each, [(0, 0), (0, size - each.shape[1])]) for each in window])
        drafts: list[mx.array] = []
        for step in range(depth):
            logits = self._model.forward_rows(ids, counts, self._cache.entries)
            self._cache.advance(counts)
            ids = self._drawn(logits, [position + step for position in positions])
            drafts.append(ids)
            counts = [int(drafts_too) for drafts_too in self._drafting]
        self._fed = depth - 1
        return mx.concatenate(drafts, axis=1)

    def settle(self, accepted: Sequence[Sequence[int]]) -> None:
        """End the draft: of each row the accepted ids and the next pending one."""
        back = []
        for chain, entered, drafts in zip(self.chains, accepted, self._drafting, strict=True):
            held = min(max(len(entered) - 1, 0), self._fed)
            back.append(self._fed - held if drafts else 0)
            if entered:
                chain.enter(entered, held)
        self._cache.rewind(back)

    def _drawn(self, logits: mx.array, positions: Sequence[int]) -> mx.array:
        """``[B, 1]`` ids."""
        samplings = [chain.sampling for chain in self.chains]
        if all(each.sampling.greedy for each in samplings):
            drawn = samplings[0].draw(logits, positions)
        else:
            drawn = mx.concatenate(
                [
                    each.draw(logits[row : row + 1], positions[row : row + 1])
                    for row, each in enumerate(samplings)
                ]
            )
        mx.async_eval(drawn)
        return drawn[:, None]
