"""What it costs to take back the refused half of a window, on a hybrid model.

The tiny target has recurrent layers whose state cannot be trimmed: they are replayed over
the kept ids.  Time of the rewind, states evaluated, is set against the time of the window's
own forward.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import mlx_lm

from mlxfill.model.target import Target
from mlxfill.rewind.window import CacheWindow

if TYPE_CHECKING:
    from pathlib import Path

CONTEXT = 128
"""Ids in the caches before a window."""
TRIALS = 60


@dataclass(frozen=True)
class RewindCost:
    """Median seconds of both sides and the median of their ratios."""

    rewind: float
    forward: float
    ratio: float


def rewind_cost(folder: Path, size: int) -> RewindCost:
    """Forward windows of ``size`` ids on the model in ``folder`` and keep half of each."""
    model = mlx_lm.load(str(folder))[0]
    with Target(model) as target:
        trials = [trial(target, size) for _ in range(TRIALS)]
    return RewindCost(
        rewind=statistics.median(rewind for rewind, _ in trials),
        forward=statistics.median(forward for _, forward in trials),
        ratio=statistics.median(rewind / forward for rewind, forward in trials),
    )


def trial(target: Target, size: int) -> tuple[float, float]:
    """Seconds of one rewind and of the forward before it."""
    cache = target.new_cache()
    ids = mx.random.randint(0, target.vocab_size, (1, CONTEXT + size))
    evaluate(target.forward(ids[:, :CONTEXT], cache), cache)
    window = CacheWindow(target, cache)
    begin = time.perf_counter()
    evaluate(window.forward(ids[:, CONTEXT:]), cache)
    middle = time.perf_counter()
    window.rewind(size // 2)
    evaluate(None, cache)
    return time.perf_counter() - middle, middle - begin


def evaluate(logits: mx.array | None, cache: list[Any]) -> None:
    """Compute everything that MLX has put off."""
    mx.eval(logits, [entry.state for entry in cache])
