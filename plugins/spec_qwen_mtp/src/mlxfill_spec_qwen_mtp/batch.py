"""Rows that draft in common forwards of the head."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import mlx.core as mx

from mlxfill import BatchedCache

if TYPE_CHECKING:
    from mlxfill_spec_qwen_mtp.chain import Chain, Head


class Batch:
    """Chains whose caches lie in one batch: row b is that of ``chains[b]``."""

    def __init__(self, head: Head) -> None:
        """No rows."""
        self._head, self._cache = head, BatchedCache()
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

        What waits for the cache is forwarded first, all rows' at once.
        """
        self._drafting = [token is not None for token in pending]
        window = [
            None if token is None else chain.begin(token)
            for chain, token in zip(self.chains, pending, strict=True)
        ]
        counts = [0 if each is None else each[0].shape[1] for each in window]
        tokens, states = _padded(window, max(counts))
        drafts: list[mx.array] = []
        for step in range(depth):
            entries = self._cache.entries
            states, logits = self._head.guess_rows(tokens, states, counts, entries)
            self._cache.advance(counts)
            tokens = self._drawn(logits, [position + step for position in positions])
            drafts.append(tokens)
            counts = [int(drafts_too) for drafts_too in self._drafting]
        self._fed = depth - 1
        return mx.concatenate(drafts, axis=1)

    def settle(self, accepted: Sequence[Sequence[int]], states: mx.array) -> None:
        """End the draft: of each row the accepted ids and the next pending one, and the states
        ``[B, S, H]`` of the old pending one and of the accepted ids.
        """
        back = []
        rows = zip(self.chains, accepted, self._drafting, strict=True)
        for row, (chain, entered, drafts) in enumerate(rows):
            held = 0
            if entered:
                held = chain.enter(entered, states[row : row + 1, : len(entered)], self._fed)
            back.append(self._fed - held if drafts else 0)
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


def _padded(
    window: Sequence[tuple[mx.array, mx.array] | None], size: int
) -> tuple[mx.array, mx.array]:
    """Tokens ``[1, n]`` and states ``[1, n, H]`` of some rows, each ``size`` long."""
    like = next(each[1] for each in window if each is not None)
    nothing = mx.zeros((1, 0), mx.int32), mx.zeros((1, 0, like.shape[2]), like.dtype)
    parts = [each or nothing for each in window]
    tokens = [mx.pad(ids, [(0, 0), (0, size - ids.shape[1])]) for ids, _ in parts]
    states = [mx.pad(each, [(0, 0), (0, size - each.shape[1]), (0, 0)]) for _, each in parts]
    return mx.concatenate(tokens), mx.concatenate(states)
