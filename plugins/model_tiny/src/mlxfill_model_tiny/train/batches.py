"""Batches for training and validation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mlx.core as mx
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mlxfill_model_tiny.train.documents import Document

    Batch = tuple[mx.array, mx.array]

LENGTH_STEP = 128
"""Batches are padded to a multiple of this, so that few lengths need compiling."""

_CONTEXT_WEIGHT = 0.1
"""Loss weight of a token that the assistant reads rather than writes."""

_SORTED_TOGETHER = 16
"""Batches whose documents are sorted by length before they are cut apart."""

_COPY_LENGTH = 128


def training_batches(documents: Sequence[Document], rows: int, seed: int) -> Iterator[Batch]:
    """Endless batches of similar length: ids ``[B, T + 1]`` and loss weights ``[B, T]``."""
    rng = np.random.default_rng(seed)
    while True:
        order = rng.permutation(len(documents))
        pool = min(rows * _SORTED_TOGETHER, len(order) // rows * rows)
        groups: list[list[int]] = []
        for start in range(0, len(order) - pool + 1, pool):
            by_length = sorted(order[start : start + pool], key=lambda i: len(documents[i].ids))
            groups += [by_length[i : i + rows] for i in range(0, pool, rows)]
        for group in rng.permutation(len(groups)):
            ids, own = _padded([documents[i] for i in groups[group]])
            weights = np.where(own > 0, 1.0, np.where(ids[:, 1:] >= 0, _CONTEXT_WEIGHT, 0.0))
            yield mx.array(np.maximum(ids, 0)), mx.array(weights.astype(np.float32))


def validation_batches(documents: Sequence[Document], rows: int = 16) -> Iterator[Batch]:
    """All documents once: ids ``[B, T + 1]`` and 1 where the assistant writes ``[B, T]``."""
    by_length = sorted(documents, key=lambda document: len(document.ids))
    for start in range(0, len(by_length), rows):
        ids, own = _padded(by_length[start : start + rows])
        yield mx.array(np.maximum(ids, 0)), mx.array(own)


def copy_batches(documents: Sequence[Document], rows: int, seed: int) -> Iterator[Batch]:
    """Random segments that come again; only repeated tokens count.

    Tokens are drawn from what the assistant writes in ``documents``.  A few hundred short
    steps of this teach a model to look back and copy, which takes far longer to emerge
    from the conversations alone.  Ids ``[B, T + 1]`` and loss weights ``[B, T]``.
    """
    rng = np.random.default_rng(seed)
    written = np.concatenate([document.ids[document.own > 0] for document in documents])
    alphabet, count = np.unique(written, return_counts=True)
    share = np.sqrt(count) / np.sqrt(count).sum()
    while True:
        ids = np.zeros((rows, _COPY_LENGTH + 1), dtype=np.int32)
        weights = np.zeros((rows, _COPY_LENGTH + 1), dtype=np.float32)
        for row in range(rows):
            few = rng.choice(alphabet, 2 ** rng.integers(2, 7), p=share)
            segments = [rng.choice(few, rng.integers(2, 10)) for _ in range(rng.integers(3, 9))]
            _repeat(segments, ids[row], weights[row], rng)
        yield mx.array(ids), mx.array(weights[:, 1:])


def _repeat(
    segments: Sequence[np.ndarray], ids: np.ndarray, weights: np.ndarray, rng: np.random.Generator
) -> None:
    """Fill ``ids`` with segments in random order; weigh what follows a repeated first token."""
    seen: set[int] = set()
    at = 0
    while at < len(ids):
        which = int(rng.integers(len(segments)))
        segment = segments[which][: len(ids) - at]
        ids[at : at + len(segment)] = segment
        if which in seen:
            weights[at + 1 : at + len(segment)] = 1
        seen.add(which)
        at += len(segment)


def _padded(documents: Sequence[Document]) -> tuple[np.ndarray, np.ndarray]:
    """Ids ``[B, T + 1]``, -1 beyond the end, and the marks of the next tokens ``[B, T]``."""
    longest = max(len(document.ids) for document in documents) - 1
    length = -(-longest // LENGTH_STEP) * LENGTH_STEP
    ids = np.full((len(documents), length + 1), -1, dtype=np.int32)
    own = np.zeros((len(documents), length), dtype=np.float32)
    for row, document in enumerate(documents):
        size = len(document.ids)
        ids[row, :size] = document.ids
        own[row, : size - 1] = document.own[1:]
    return ids, own
