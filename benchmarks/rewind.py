"""What taking back a refused tail costs on a hybrid target, against the window's forward.

    python benchmarks/rewind.py [--rounds 60]

*Added to a round*: decode rounds whose windows lose their second half, minus rounds whose
windows are kept whole, interleaved one by one.  *Alone*: from having read the samples until
every cache array is evaluated, with nothing else to do meanwhile.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import mlx.core as mx
from attrs import frozen

from mlxfill.model.target import Target
from mlxfill.rewind.window import CacheWindow

CONTEXT = 64


@frozen
class Cost:
    """Median milliseconds of one window size."""

    size: int
    forward_ms: float
    added_ms: float
    alone_ms: float

    @property
    def added(self) -> float:
        """Added to a round, relative to the window's forward."""
        return self.added_ms / self.forward_ms

    @property
    def alone(self) -> float:
        """Alone, relative to the window's forward."""
        return self.alone_ms / self.forward_ms


def measure(path: Path, sizes: tuple[int, ...] = (8, 16), rounds: int = 60) -> Iterator[Cost]:
    """One ``Cost`` a window size for the model in ``path``."""
    from mlx_lm import load

    model, tokenizer = load(str(path))[:2]
    with Target(model, tokenizer) as target:
        for size in sizes:
            yield _measure(target, size, rounds)


def _measure(target: Target, size: int, rounds: int) -> Cost:
    whole, added, alone = [], [], []
    for at in range(rounds):
        kept = _round(target, size, size, at)
        lost = _round(target, size, size // 2, at)
        if at >= rounds // 6:  # the first ones warm up
            whole.append(kept[0])
            added.append(lost[1] - kept[1])
            alone.append(lost[2])
    median = statistics.median
    return Cost(size, median(whole), median(added), median(alone))


def _round(target: Target, size: int, keep: int, seed: int) -> tuple[float, float, float]:
    """Milliseconds of the forward, of a window and the next one, and of the rewind alone."""
    ids = (mx.arange(size)[None] * 7 + seed) % target.vocab_size
    cache = target.new_cache()
    mx.eval(target.forward(mx.arange(CONTEXT)[None] % target.vocab_size, cache))
    mx.eval([c.state for c in cache])
    window = CacheWindow(target, cache)
    start = time.perf_counter()
    _forward(window, ids)
    read = time.perf_counter()
    window.rewind(keep)
    mx.async_eval([c.state for c in cache])
    _forward(window, ids)
    done = time.perf_counter()
    again = time.perf_counter()
    window.rewind(keep)
    mx.eval([c.state for c in cache])
    end = time.perf_counter()
    return (read - start) * 1e3, (done - start) * 1e3, (end - again) * 1e3


def _forward(window: CacheWindow, ids: mx.array) -> None:
    mx.eval(mx.argmax(window.forward(ids), axis=-1))


def main() -> None:
    """Print the table."""
    from mlxfill_model_tiny.plugin import mlxfill_resolve_model

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=60)
    rounds = parser.parse_args().rounds
    path = Path(str(mlxfill_resolve_model("tiny")))
    print("window  kept  forward ms  added ms  ratio  alone ms  ratio")
    for c in measure(path, rounds=rounds):
        added = f"{c.added_ms:8.2f}  {c.added:5.2f}"
        alone = f"{c.alone_ms:8.2f}  {c.alone:5.2f}"
        print(f"{c.size:6d}  {c.size // 2:4d}  {c.forward_ms:10.2f}  {added}  {alone}")


if __name__ == "__main__":
    main()
