"""Rows of drafts by one drafter: several draft in one forward where their caches allow it."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import mlx.core as mx

from mlxfill import BatchedCache, DraftCheckpoint, DrafterError, DraftSampling
from mlxfill_spec_dflash.drafter import Ask, Drafter

if TYPE_CHECKING:
    from mlx_lm.models.cache import KVCache

CHUNK = 512
"""Most states that wait for a row's cache: more are written at once, so that memory is bounded."""


class Row:
    """What one row has heard: a cache of the context, and states that it lacks.

    Drafts leave no trace: what became of them comes as states of the target.
    """

    def __init__(self, drafter: Drafter, sampling: DraftSampling, cache: list[KVCache]) -> None:
        """``cache`` is used in place; empty while it lies in a batch."""
        self.cache, self.sampling = cache, sampling
        self.processed = cache[0].offset if cache else 0
        self._drafter = drafter
        self._waiting: list[mx.array] = []

    def take(self, states: mx.array) -> None:
        """Take note of the states ``[1, L, n * H]`` of tokens that entered."""
        self._waiting.append(states)
        self.processed += states.shape[1]
        if self.cache and sum(each.shape[1] for each in self._waiting) >= CHUNK:
            self.catch_up()

    def catch_up(self) -> None:
        """Write into the cache what waits."""
        states = self._waited()
        if states.shape[1]:
            self._drafter.module.remember(states, self.cache)
        mx.eval([entry.state for entry in self.cache if entry.keys is not None])

    def ask(self, pending: int | None, position: int) -> Ask:
        """Drafts after ``pending``; the caller writes what waited."""
        width = self._drafter.aux_width
        states = mx.zeros((1, 0, width)) if pending is None else self._waited()
        return Ask(pending, position, states, self.sampling)

    def apart(self, cache: list[KVCache]) -> Row:
        """The same row with a cache of its own."""
        row = Row(self._drafter, self.sampling, cache)
        row._waiting, row.processed = list(self._waiting), self.processed
        return row

    def _waited(self) -> mx.array:
        nothing = [mx.zeros((1, 0, self._drafter.aux_width))]
        waiting, self._waiting = self._waiting or nothing, []
        return mx.concatenate(waiting, axis=1) if len(waiting) > 1 else waiting[0]


class BlockRows:
    """Drafts for B >= 1 rows, as the contract ``mlxfill.DraftRows`` says.

    A single row has a cache of its own; others lie in a batch as soon as they draft together.
    """

    prefill_mode: Literal["tail-split", "full"] = "tail-split"

    def __init__(self, namespace: str, drafter: Drafter) -> None:
        """No rows yet."""
        self.namespace, self.aux_layers = namespace, drafter.config.target_layers
        self._drafter = drafter
        self._rows: list[Row] = []
        self._batch: BatchedCache | None = None

    @property
    def row_count(self) -> int:
        """Rows at present."""
        return len(self._rows)

    def prefill(self, tokens: mx.array, context: mx.array | None = None) -> None:
        """Take ``[B, L]`` prompt ids with their states ``[B, L, n * H]``."""
        self.consume(tokens, [tokens.shape[1]] * len(self._rows), context)
        for row in self._rows:
            if row.cache:
                row.catch_up()

    def draft(
        self, pending: Sequence[int | None], depth: int, positions: Sequence[int]
    ) -> mx.array:
        """``[B, d]`` ids on the device after each row's pending id, ``d <= depth``."""
        depth = min(depth, self._drafter.config.drafts)
        if depth < 1:
            return mx.zeros((self.row_count, 0), mx.int32)
        batch = self._together()
        rows = zip(self._rows, pending, positions, strict=True)
        asks = [row.ask(token, position) for row, token, position in rows]
        if batch is not None:
            drafts, _ = self._drafter.propose(asks, depth, batch.entries)
            batch.advance([ask.states.shape[1] for ask in asks])
            return drafts
        none = mx.zeros((1, depth), mx.int32)
        each = [
            none if ask.pending is None else self._alone(row, ask, depth)
            for row, ask in zip(self._rows, asks, strict=True)
        ]
        return mx.concatenate(each) if len(each) > 1 else each[0]

    def commit(self, accepted: Sequence[Sequence[int]], context: mx.array | None = None) -> None:
        """End a round: the kept drafts of each row, then its next pending id."""
        states = _needed(context)
        for row, (each, entered) in enumerate(zip(self._rows, accepted, strict=True)):
            if entered:
                each.take(states[row : row + 1, : len(entered)])

    def consume(
        self,
        tokens: mx.array,  # noqa: ARG002 - their states say it all
        lengths: Sequence[int],
        context: mx.array | None = None,
    ) -> None:
        """Take the states of the first ``lengths[b]`` ids that others chose."""
        states = _needed(context)
        for row, (each, length) in enumerate(zip(self._rows, lengths, strict=True)):
            if length:
                each.take(states[row : row + 1, :length])

    def append(
        self, samplings: Sequence[DraftSampling], checkpoints: Sequence[DraftCheckpoint | None]
    ) -> None:
        """Rows join at the end: restored ones, and an empty one for each None."""
        for sampling, checkpoint in zip(samplings, checkpoints, strict=True):
            cache = self._drafter.module.new_cache()
            if checkpoint is not None:
                restore(checkpoint, self.namespace, cache)
            self._rows.append(Row(self._drafter, sampling, cache))

    def keep(self, rows: Sequence[int]) -> None:
        """Only these rows remain, in this order."""
        batch = self._batch and self._together()
        if batch is not None:
            batch.keep(rows)
        self._rows = [self._rows[row] for row in rows]
        if batch is not None and len(rows) == 1:
            self._part()

    def capture(self, row: int) -> DraftCheckpoint:
        """The row's cache with everything processed in it."""
        chosen = self._rows[row]
        if not chosen.cache and self._batch is not None:
            chosen = chosen.apart(self._batch.extract(self._inside(row)))
        chosen.catch_up()
        tensors: dict[str, mx.array] = {}
        for number, entry in enumerate(chosen.cache):
            if entry.keys is not None:
                keys, values = entry.keys_and_values()
                tensors |= {_KEYS(number): copy.copy(keys), _VALUES(number): copy.copy(values)}
        mx.eval(tensors)
        return DraftCheckpoint(self.namespace, chosen.processed, tensors)

    def close(self) -> None:
        """Release the caches."""
        self._rows, self._batch = [], None

    def _alone(self, row: Row, ask: Ask, depth: int) -> mx.array:
        drafts, written = self._drafter.propose([ask], depth, row.cache)
        for entry in row.cache:
            entry.trim(written - ask.states.shape[1])
        return drafts

    def _inside(self, row: int) -> int:
        """Where in the batch a row lies; rows outside have a cache of their own."""
        return sum(not each.cache for each in self._rows[:row])

    def _together(self) -> BatchedCache | None:
        """The batch with all rows in it; None where they cannot draft together."""
        apart = [row for row in self._rows if row.cache]
        if not all(BatchedCache.fits(row.cache) for row in apart):
            self._part()
        elif self._batch is not None or len(apart) > 1:
            self._batch = self._batch or BatchedCache()
            if apart:
                self._batch.join([row.cache for row in apart])
            for row in apart:
                row.cache = []
        return self._batch

    def _part(self) -> None:
        """Every row has a cache of its own again."""
        if self._batch is not None:
            inside = (self._batch.extract(at) for at in range(len(self._batch.held)))
            self._rows = [row if row.cache else row.apart(next(inside)) for row in self._rows]
            self._batch = None


_KEYS, _VALUES = "keys.{}".format, "values.{}".format


def restore(checkpoint: DraftCheckpoint, namespace: str, cache: list[KVCache]) -> None:
    """Fill the fresh ``cache`` from a checkpoint, which stays as it is.

    :raises DrafterError: it belongs to another drafter, or does not hold what it says.
    """
    if checkpoint.namespace != namespace:
        raise DrafterError(
            f"the checkpoint is of drafter {checkpoint.namespace!r}, this one is {namespace!r}:"
            " mount the drafter that made it"
        )
    tokens = checkpoint.processed_tokens
    for number, entry in enumerate(cache if tokens else []):
        keys = checkpoint.tensors.get(_KEYS(number))
        values = checkpoint.tensors.get(_VALUES(number))
        held = 0 if keys is None else keys.shape[2]
        if keys is None or values is None or held != tokens:
            raise DrafterError(
                f"the checkpoint of drafter {namespace!r} holds {held} rows for {tokens}"
                " processed tokens: make it anew"
            )
        entry.state = (copy.copy(keys), copy.copy(values), tokens)


def _needed(context: mx.array | None) -> mx.array:
    if context is None:
        raise DrafterError("a block drafter needs the target's hidden states with every token")
    return context
