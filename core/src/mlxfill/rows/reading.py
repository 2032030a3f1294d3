"""Parts of several prompts through the target in one forward."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import mlx.core as mx

from mlxfill.rows.caches import RowCaches

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mlxfill.model.hooks import LayerTrace
    from mlxfill.model.target import Target

PAD = 0
"""Fills the window of a row that has less to say; nobody sees it."""


def read_rows(
    target: Target,
    caches: Sequence[list[Any]],
    held: Sequence[int],
    chunks: Sequence[Sequence[int]],
    aux_layers: Sequence[int] = (),
) -> LayerTrace | None:
    """Forward ``chunks[b]`` after the ``held[b]`` tokens of ``caches[b]``, lazily, without a head.

    Each of the mlx-lm caches holds its chunk afterwards.  All of them held tokens before, or none
    did; where chunks are of unequal length the shorter ones are filled up behind their end.

    :returns: the tape of ``aux_layers``, None without any.
    """
    rows = RowCaches()
    rows.join(caches, held)
    counts = [len(chunk) for chunk in chunks]
    size = max(counts)
    ids = mx.array([[*chunk, *[PAD] * (size - len(chunk))] for chunk in chunks], mx.int32)
    rows.expect(counts)
    with target.taping(aux_layers) if aux_layers else nullcontext() as tape:
        target.forward(ids, rows.entries)
    rows.advance(counts)
    for at, cache in enumerate(caches):
        cache[:] = rows.extract(at)
    return tape


def evaluated(caches: Sequence[Sequence[Any]]) -> Iterator[None]:
    """Compute the states of caches, layer by layer; yields when a layer is done.

    The same arrays come of it as of all at once, whatever is computed in between.  A layer is
    under way when the one before it is waited for, so that a device never is without work.

    :param caches: of several rows, each a list with an entry a layer.
    """
    states = [[entry.state for entry in layer] for layer in zip(*caches, strict=True)]
    for at, state in enumerate(states):
        mx.async_eval(states[at : at + 2])
        mx.eval(state)
        yield
