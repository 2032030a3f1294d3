"""One draft model and one row of drafts on it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import make_prompt_cache

from mlxfill import CacheMark, CompiledForward, DraftSampling

CHUNK = 512
"""Most ids of a row's backlog: more are forwarded at once, so that graphs stay bounded."""


class DraftModel:
    """An mlx-lm model whose logits are cut or padded to the target's vocabulary.

    A draft is drawn with the target's key for its position.  The noise of that key belongs to
    the ids only where both vocabularies are equally long, so ids that the target does not
    have are cut off and ids that the draft does not have are never drawn.
    """

    def __init__(self, model: Any, target_vocab_size: int) -> None:  # noqa: ANN401
        self.model = model
        # Shapes are known before anything is computed.
        self.vocab_size: int = model(mx.zeros((1, 1), mx.int32)).shape[-1]
        self._target = target_vocab_size
        self._compiled = CompiledForward(self._logits)
        self._compiled_rows = CompiledForward(self._row_logits)

    def new_cache(self) -> list[Any]:
        """An empty prompt cache of any kind that mlx-lm knows."""
        return list(make_prompt_cache(self.model))

    def forward(self, ids: mx.array, cache: list[Any]) -> mx.array:
        """``[1, L]`` ids to the target-sized logits ``[1, V]`` after the last one, lazily."""
        logits: mx.array = self._compiled(ids, cache=cache)
        return logits

    def forward_rows(self, ids: mx.array, counts: Sequence[int], cache: list[Any]) -> mx.array:
        """``[B, L]`` ids to the logits ``[B, V]`` after the first ``counts[b]`` of each row."""
        last = mx.array([max(count - 1, 0) for count in counts])[:, None, None]
        logits: mx.array = self._compiled_rows(ids, last, cache=cache)
        return logits

    def _row_logits(self, ids: mx.array, last: mx.array, cache: list[Any]) -> mx.array:
        every: mx.array = self.model(self._known(ids), cache=cache)
        return self._sized(mx.take_along_axis(every, last, axis=1)[:, 0, :])

    def _logits(self, ids: mx.array, cache: list[Any]) -> mx.array:
        return self._sized(self.model(self._known(ids), cache=cache)[:, -1, :])

    def _known(self, ids: mx.array) -> mx.array:
        """The same ids but those that it has no row for: any will do."""
        short = self.vocab_size < self._target
        return mx.minimum(ids, self.vocab_size - 1) if short else ids

    def _sized(self, logits: mx.array) -> mx.array:
        if self.vocab_size == self._target:
            return logits
        if self.vocab_size < self._target:
            return mx.pad(
                logits, [(0, 0), (0, self._target - self.vocab_size)], constant_values=-mx.inf
            )
        return logits[:, : self._target]


class Chain:
    """The drafts of one row: a cache, and ids that entered the session but not yet the cache.

    ``processed`` counts the session's tokens known here; the cache holds those but the
    backlog.  Backlog and pending token are forwarded together at the start of a draft.
    """

    def __init__(self, model: DraftModel, sampling: DraftSampling, cache: list[Any]) -> None:
        """``cache`` is used in place."""
        self.cache = cache
        self.processed = 0
        self._model, self._sampling = model, sampling
        self._backlog: list[mx.array] = []
        self._mark: CacheMark | None = None
        self._fed = 0

    @property
    def sampling(self) -> DraftSampling:
        """How its drafts are drawn."""
        return self._sampling

    @property
    def waiting(self) -> int:
        """Ids that its cache does not hold yet."""
        return sum(each.shape[1] for each in self._backlog)

    def take(self, ids: mx.array) -> None:
        """Take note of ``[1, L]`` ids that entered the session."""
        self.processed += ids.shape[1]
        self._backlog.append(ids)
        if self.waiting >= CHUNK and self.cache:
            self.catch_up()

    def waited(self) -> mx.array:
        """The ``[1, waiting]`` ids, which somebody forwards now."""
        ids = mx.concatenate(self._backlog, axis=1) if len(self._backlog) > 1 else self._backlog[0]
        self._backlog = []
        return ids

    def apart(self, cache: list[Any]) -> Chain:
        """The same row with a cache of its own."""
        chain = Chain(self._model, self._sampling, cache)
        chain.processed, chain._backlog = self.processed, list(self._backlog)
        return chain

    def catch_up(self) -> None:
        """Forward the backlog and wait for it."""
        if self._backlog:
            self._forward_backlog()
            mx.eval([entry.state for entry in self.cache])

    def draft(self, pending: int, depth: int, position: int) -> mx.array:
        """``[1, depth]`` ids after ``pending``, which enters; the first is for ``position``.

        Nothing is read back: each step is dispatched while the next one is built.
        """
        self.processed += 1
        self._backlog.append(mx.array([[pending]]))
        logits = self._forward_backlog()
        self._mark, self._fed = CacheMark(self.cache, ahead=depth), depth - 1
        drafts = [self._draw(logits, position)]
        for step in range(1, depth):
            logits = self._model.forward(drafts[-1], self.cache)
            drafts.append(self._draw(logits, position + step))
        return mx.concatenate(drafts, axis=1)

    def settle(self, entered: Sequence[int]) -> None:
        """End the draft: ``entered`` are the accepted ids and the next pending one.

        The cache keeps the accepted ids that were forwarded.  Accepted ids that it lacks (the last
        draft, or all of them where it cannot be trimmed) come with the next pending token.
        """
        held = min(len(entered) - 1, self._fed)
        if held < self._fed and self._mark is not None:
            held = self._mark.back(held)
        self._mark = None
        self.enter(entered, held)

    def enter(self, entered: Sequence[int], held: int) -> None:
        """The same, where the cache keeps the first ``held`` accepted ids."""
        accepted = entered[:-1]
        self.processed += len(accepted)
        if accepted[held:]:
            self._backlog.append(mx.array([accepted[held:]]))

    def _forward_backlog(self) -> mx.array:
        return self._model.forward(self.waited(), self.cache)

    def _draw(self, logits: mx.array, position: int) -> mx.array:
        """``[1, 1]`` ids."""
        drawn = self._sampling.draw(logits, (position,))[:, None]
        mx.async_eval(drawn)
        return drawn
