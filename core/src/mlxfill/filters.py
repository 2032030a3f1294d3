"""What a draw may choose from: top-p, min-p, XTC and top-k keep what mlx-lm's keep.

mlx-lm's own (``mlx_lm.sample_utils``) are compiled, and a threshold is a constant of the compiled
graph.  Each new value builds kernels, on a CPU for half a second, and they and the graph stay
until the process ends: a server whose clients choose their values grows.  These run as they stand,
which takes as long: the time goes into sorting.

All take log-probabilities ``[..., V]`` and answer the same with minus infinity for what is out.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    import mlx.core as mx

OUT = -math.inf


def top_p(logprobs: mx.array, share: float) -> mx.array:
    """The fewest likeliest tokens that together have ``share``, above 0, of the probability."""
    import mlx.core as mx

    rising = mx.sort(logprobs, axis=-1)
    mass = mx.exp(rising.astype(mx.float32))
    above = mx.cumsum(mass, axis=-1, reverse=True, inclusive=False)
    total = above[..., :1] + mass[..., :1]
    kept = mx.where(above >= share * total, math.inf, rising)
    return mx.where(logprobs < kept.min(axis=-1, keepdims=True), OUT, logprobs)


def min_p(logprobs: mx.array, share: float, least: int) -> mx.array:
    """Tokens at least ``share``, above 0, as likely as the likeliest; never under ``least``."""
    import mlx.core as mx

    out = logprobs < logprobs.max(axis=-1, keepdims=True) + math.log(share)
    if least > 1:
        least = min(least, logprobs.shape[-1])
        kept = mx.argpartition(logprobs, kth=-least, axis=-1)[..., -least:]
        out = mx.put_along_axis(out, kept, mx.array(False), axis=-1)  # noqa: FBT003 - a value
    return mx.where(out, OUT, logprobs)


def xtc(
    logprobs: mx.array, probability: float, threshold: float, spared: Sequence[int]
) -> mx.array:
    """With ``probability``, without all tokens above ``threshold`` but the unlikeliest of them.

    Tosses by mlx's global generator, once for all rows.  Ids in ``spared`` stay.
    """
    import mlx.core as mx

    likely = mx.softmax(logprobs, axis=-1)
    last = mx.where(likely > threshold, likely, math.inf).min(axis=-1, keepdims=True)
    out = likely > last
    if spared:
        out[..., list(spared)] = False
    stays = mx.random.uniform(0, 1) > probability
    return mx.where(stays | ~out, logprobs, OUT)


def top_k(logprobs: mx.array, count: int) -> mx.array:
    """The ``count`` likeliest tokens; 0 < ``count`` < V."""
    import mlx.core as mx

    kept = mx.argpartition(-logprobs, kth=count - 1, axis=-1)[..., :count]
    nothing = mx.full(logprobs.shape, OUT, logprobs.dtype)
    return mx.put_along_axis(nothing, kept, mx.take_along_axis(logprobs, kept, axis=-1), axis=-1)
