"""Whether a model can forward several rows together: tried, not assumed."""

from __future__ import annotations

import math
from contextlib import nullcontext
from enum import Enum
from typing import TYPE_CHECKING, Any

import mlx.core as mx

from mlxfill.model.reading import apart
from mlxfill.rewind.rings import wider_than_ring
from mlxfill.rows.caches import RowCaches, layout
from mlxfill.rows.reading import read_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlxfill.model.target import Target

CONTEXTS = ((1, 2, 3, 4, 5), (6,), (3, 1, 2))
"""One of a single token: states may grow with the first few."""
WINDOWS = ((2, 4, 6, 5), (1, 3, 5, 2), (7, 6, 1, 3))
KEPT = (1, 3, 2)
AFTER = (5, 4, 2)


class Readings(Enum):
    """Prompts that may be read in one forward: of any length, of the same length, none."""

    ANY = "any"
    EVEN = "even"
    NONE = "none"


def prove_rows(target: Target) -> str:
    """Try three rows together: "" when each is as if alone, else the reason why not.

    Rows of different lengths share a window, of which each keeps another part, and a step after
    it; the logits of both are compared with those of each row alone.  A matrix library may add
    in another order for more rows: half of the dtype's digits must agree.
    """
    try:
        if wider := wider_than_ring(target):
            return wider
        worst = _compared(target)
    except Exception as error:  # noqa: BLE001 - whatever a foreign model raises: no rows
        return f"{type(error).__name__}: {error}"
    return "" if worst <= _allowed(target) else f"logits of rows together differ by {worst:.2g}"


def prove_readings(target: Target) -> Readings:
    """Try to read three prompts together, in two parts, and compare the logits after them.

    Recurrent states stop at the end of a short prompt only where the model heeds it.
    """
    for kind, prompts in ((Readings.ANY, CONTEXTS), (Readings.EVEN, WINDOWS)):
        try:
            alike = _read(target, prompts) <= _allowed(target)
            if alike and not wider_than_ring(target):
                return kind
        except Exception:  # noqa: BLE001, S112 - whatever a foreign model raises: not like this
            continue
    return Readings.NONE


def _compared(target: Target) -> float:
    rows, alone = RowCaches(), [_alone(target, context) for context in CONTEXTS]
    if layout(alone[0]) is None:
        message = f"a {type(alone[0][0]).__name__} cannot hold several rows"
        raise TypeError(message)
    rows.join(alone, [len(context) for context in CONTEXTS])
    rows.begin()
    with target.taping() if rows.needs_tape else nullcontext() as tape:
        first = target.forward(mx.array(WINDOWS), rows.entries)
    rows.settle(KEPT, len(WINDOWS[0]), tape)
    second = target.forward(mx.array([[token] for token in AFTER]), rows.entries)
    rows.settle([1] * len(AFTER))
    worst = 0.0
    for b, cache in enumerate(alone):
        kept = mx.array([WINDOWS[b][: KEPT[b]]])
        worst = max(worst, apart(first[b, : KEPT[b]], target.forward(kept, cache)[0]))
        worst = max(worst, apart(second[b], target.forward(mx.array([[AFTER[b]]]), cache)[0]))
    return worst


def _read(target: Target, prompts: Sequence[Sequence[int]]) -> float:
    """The same prompts twice: first to empty caches, then to caches that hold them."""
    counts = [len(prompt) for prompt in prompts]
    together = [target.new_cache() for _ in prompts]
    read_rows(target, together, [0] * len(prompts), prompts)
    read_rows(target, together, counts, prompts[::-1])
    worst = 0.0
    for prompt, more, cache in zip(prompts, prompts[::-1], together, strict=True):
        ours, theirs = mx.array([AFTER[:1]]), _alone(target, prompt, more)
        worst = max(worst, apart(target.forward(ours, cache), target.forward(ours, theirs)))
    return worst


def _alone(target: Target, *parts: Sequence[int]) -> list[Any]:
    """A cache of one row that was read part by part."""
    cache = target.new_cache()
    for part in parts:
        mx.eval(target.forward(mx.array([part]), cache))
    return cache


def _allowed(target: Target) -> float:
    return math.sqrt(mx.finfo(target.dtype).eps)
