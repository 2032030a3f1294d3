"""Losses and accuracies over weighted positions."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import mlx.core as mx
import mlx.nn as nn

from mlxfill_model_tiny.train.batches import validation_batches
from mlxfill_model_tiny.train.fast_math import logsumexp, softmax

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mlxfill_model_tiny.train.documents import Document


def next_token_loss(logits: mx.array, labels: mx.array, weights: mx.array) -> mx.array:
    """Weighted mean cross-entropy: ``[B, T, V]``, ``[B, T]``, ``[B, T]`` to a scalar, in nats."""
    chosen = mx.take_along_axis(logits, labels[..., None], -1).squeeze(-1)
    return ((logsumexp(logits) - chosen) * weights).sum() / weights.sum()


def teacher_loss(logits: mx.array, teacher: mx.array, weights: mx.array) -> mx.array:
    """Cross-entropy to another model's distribution: ``[B, T, V]`` twice, ``[B, T]``, in nats."""
    crossed = logsumexp(logits) - (softmax(teacher) * logits).sum(-1)
    return (crossed * weights).sum() / weights.sum()


def total(values: mx.array) -> float:
    """The sum of all elements, on the host."""
    return float(cast("float", values.sum().item()))


def next_token_quality(
    forward: Callable[[mx.array], mx.array], documents: Sequence[Document]
) -> dict[str, float]:
    """Loss (nats) and accuracy over all tokens that the assistant writes."""
    loss = hits = count = 0.0
    for ids, own in validation_batches(documents):
        logits = forward(ids[:, :-1])
        labels = ids[:, 1:]
        loss += total(nn.losses.cross_entropy(logits, labels) * own)
        hits += total((mx.argmax(logits, -1) == labels) * own)
        count += total(own)
    return {"loss": loss / count, "accuracy": hits / count}
