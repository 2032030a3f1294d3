"""Parts of several prompts through the target in one forward."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import mlx.core as mx

from mlxfill.rows.caches import RowCaches

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mlxfill.model.hooks import Tape
    from mlxfill.model.target import Target

PAD = 0
"""Fills the window of a row that has less to say; nobody sees it."""


def read_rows(  # noqa: PLR0913 - what a common forward takes
    target: Target,
    caches: Sequence[list[Any]],
    held: Sequence[int],
    chunks: Sequence[Sequence[int]],
    tap_layers: Sequence[int] = (),
    *,
    told: Sequence[Callable[[], None]] = (),
) -> Tape | None:
    """Forward ``chunks[b]`` after the ``held[b]`` tokens of ``caches[b]``, without a head.

    Each of the mlx-lm caches holds its chunk afterwards.  All of them held tokens before, or none
    did; where chunks are of unequal length the shorter ones are filled up behind their end.
    ``told`` as in ``evaluate``.

    :returns: the tape of ``tap_layers``, None without any.
    """
    rows = RowCaches()
    rows.join(caches, held)
    counts = [len(chunk) for chunk in chunks]
    size = max(counts)
    ids = mx.array([[*chunk, *[PAD] * (size - len(chunk))] for chunk in chunks], mx.int32)
    rows.expect(counts)
    with target.taping(tap_layers) if tap_layers else nullcontext() as tape:
        target.forward(ids, rows.entries)
    rows.advance(counts)
    for at, cache in enumerate(caches):
        cache[:] = rows.extract(at)
    evaluate(list(zip(*caches, strict=True)), told)
    return tape


def evaluate(layers: Sequence[Any], told: Sequence[Callable[[], None]]) -> None:
    """Compute the states of caches, layer by layer.

    The same arrays come of it as of all at once.  A layer is under way when the one before it is
    waited for, so that a device never is without work.

    :param layers: a cache each, or a tuple of them: the same layer of several rows.
    :param told: called when a layer is done.
    """
    states = [[entry.state for entry in _entries(layer)] for layer in layers]
    for at, state in enumerate(states):
        mx.async_eval(states[at : at + 2])
        mx.eval(state)
        for each in told:
            each()


def _entries(layer: Any) -> Sequence[Any]:  # noqa: ANN401 - a cache of mlx-lm's, or several
    return layer if isinstance(layer, tuple) else (layer,)
