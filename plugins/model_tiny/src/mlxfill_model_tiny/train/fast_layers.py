"""Layer operations that train fast on a CPU, swapped in for mlx-lm's while training."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models import qwen3, qwen3_5, qwen3_next

from mlxfill_model_tiny.train import fast_math
from mlxfill_model_tiny.train.delta_rule import chunked_gated_delta

if TYPE_CHECKING:
    from collections.abc import Iterator

_MASKED = -60.0
"""Added to a score that causality forbids; far below all others, and finite."""


def _depthwise_conv(layer: nn.Conv1d, x: mx.array) -> mx.array:
    """A grouped ``Conv1d`` of one channel a group, as a sum of shifts: a much faster gradient.

    ``[B, T + K - 1, C]`` to ``[B, T, C]``; the layer's weight is ``[C, K, 1]``.
    """
    weight = layer.weight[..., 0]
    width = weight.shape[1]
    length = x.shape[1] - width + 1
    shifted = [x[:, i : i + length] * weight[:, i] for i in range(width)]
    return sum(shifted[1:], shifted[0])


def _attention(  # noqa: PLR0913, PLR0917 - the signature of the function it stands in for
    queries: mx.array,
    keys: mx.array,
    values: mx.array,
    cache: None,  # noqa: ARG001
    scale: float,
    mask: object,  # noqa: ARG001
) -> mx.array:
    """Causal attention without a cache: ``[B, H, T, D]``, keys and values ``[B, Hk, T, D]``."""
    batch, heads, length, size = queries.shape
    groups = keys.shape[1]
    grouped = (queries * scale).reshape(batch, groups, heads // groups, length, size)
    scores = grouped @ keys[:, :, None].swapaxes(-1, -2)
    scores = scores + mx.triu(mx.full((length, length), _MASKED), 1)
    mixed = fast_math.softmax(scores) @ values[:, :, None]
    return mixed.reshape(batch, heads, length, size)


def _gated(_: mx.array, gate: mx.array, x: mx.array) -> mx.array:
    return fast_math.swiglu(gate, x)


_SWAPS: tuple[tuple[Any, str, object], ...] = (
    (qwen3_5, "gated_delta_update", chunked_gated_delta),
    (nn.Conv1d, "__call__", _depthwise_conv),
    (nn, "silu", fast_math.silu),
    (mx, "sigmoid", fast_math.sigmoid),
    (qwen3_next, "swiglu", fast_math.swiglu),
    (qwen3_next, "precise_swiglu", _gated),
    (qwen3_next, "scaled_dot_product_attention", _attention),
    (qwen3, "swiglu", fast_math.swiglu),
    (qwen3, "scaled_dot_product_attention", _attention),
)


@contextmanager
def fast_training() -> Iterator[None]:
    """Swap the operations of this package into mlx and mlx-lm, and put the originals back."""
    originals = [(owner, name, getattr(owner, name)) for owner, name, _ in _SWAPS]
    for owner, name, replacement in _SWAPS:
        setattr(owner, name, replacement)
    try:
        yield
    finally:
        for owner, name, original in originals:
            setattr(owner, name, original)
