"""Whether a model can forward several rows together: tried, not assumed."""

from __future__ import annotations

import math
from contextlib import nullcontext
from typing import TYPE_CHECKING

import mlx.core as mx

from mlxfill.model.reading import one_float
from mlxfill.rows.caches import RowCaches, layout

if TYPE_CHECKING:
    from mlxfill.model.target import Target

CONTEXTS = ((1, 2, 3, 4, 5), (6, 7), (3, 1, 2))
WINDOWS = ((2, 4, 6), (1, 3, 5), (7, 6, 1))
KEPT = (1, 3, 2)
AFTER = (5, 4, 2)


def prove_rows(target: Target) -> str:
    """Try three rows together: "" when each is as if alone, else the reason why not.

    Rows of different lengths share a window, of which each keeps another part, and a step after
    it; the logits of both are compared with those of each row alone.  A matrix library may add
    in another order for more rows: half of the dtype's digits must agree.
    """
    try:
        return _compared(target)
    except Exception as error:  # noqa: BLE001 - whatever a foreign model raises: no rows
        return f"{type(error).__name__}: {error}"


def _compared(target: Target) -> str:
    rows, alone = RowCaches(), []
    for context in CONTEXTS:
        cache = target.new_cache()
        mx.eval(target.forward(mx.array([context]), cache))
        if layout(cache) is None:
            return f"a {type(cache[0]).__name__} cannot hold several rows"
        rows.join(cache, len(context))
        alone.append(cache)
    rows.begin()
    with target.taping() if rows.needs_tape else nullcontext() as tape:
        first = target.forward(mx.array(WINDOWS), rows.entries)
    rows.settle(KEPT, len(WINDOWS[0]), tape)
    second = target.forward(mx.array([[token] for token in AFTER]), rows.entries)
    rows.settle([1] * len(AFTER))
    worst = 0.0
    for b, cache in enumerate(alone):
        kept = mx.array([WINDOWS[b][: KEPT[b]]])
        worst = max(worst, _off(first[b, : KEPT[b]], target.forward(kept, cache)[0]))
        worst = max(worst, _off(second[b], target.forward(mx.array([[AFTER[b]]]), cache)[0]))
    allowed = math.sqrt(mx.finfo(target.dtype).eps)
    return "" if worst <= allowed else f"logits of rows together differ by {worst:.2g}"


def _off(ours: mx.array, theirs: mx.array) -> float:
    return one_float(mx.abs(ours - theirs).max() / mx.maximum(mx.abs(theirs).max(), 1.0))
