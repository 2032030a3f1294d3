"""Log-probabilities of the tokens of a prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import mlx.core as mx
from attrs import define, field

from mlxfill.model.reading import row

if TYPE_CHECKING:
    from collections.abc import Sequence

CHUNK = 256
"""Tokens of a prompt that are scored at once: a row of the vocabulary each."""


@define
class PromptScores:
    """Grows with each chunk of the prompt.  ``count``: of the likeliest, how many.

    ``logprobs`` and ``top_logprobs`` as in a ``Result``; the first token follows nothing.
    """

    count: int
    logprobs: list[float | None] = field(factory=lambda: [None])
    top_logprobs: list[list[tuple[int, float]]] = field(factory=lambda: [[]])

    def take(self, logits: mx.array, following: Sequence[int]) -> None:
        """``[L, V]`` logits of a chunk, and the tokens of the prompt that they are about."""
        logprobs = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
        chosen = mx.take_along_axis(logprobs, row(following)[:, None], axis=-1)[:, 0]
        self.logprobs += cast("list[float]", chosen.tolist())
        if not self.count:
            self.top_logprobs += [[] for _ in following]
            return
        count = min(self.count, logprobs.shape[-1])
        best = mx.argpartition(-logprobs, kth=count - 1, axis=-1)[:, :count]
        values = mx.take_along_axis(logprobs, best, axis=-1)
        both = zip(
            cast("list[list[int]]", best.tolist()),
            cast("list[list[float]]", values.tolist()),
            strict=True,
        )
        for ids, scores in both:
            pairs = zip(ids, scores, strict=True)
            self.top_logprobs.append(sorted(pairs, key=lambda pair: (-pair[1], pair[0])))
