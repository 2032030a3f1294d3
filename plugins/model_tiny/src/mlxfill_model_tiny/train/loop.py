"""The training loop: AdamW with warm-up and cosine decay, one compiled step a length."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
from attrs import frozen
from rich.progress import Progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mlxfill_model_tiny.train.batches import Batch

    Loss = Callable[[Any, mx.array, mx.array], mx.array]

_WARM_UP_STEPS = 100
_STEPS_PER_REPORT = 200


@frozen
class Phase:
    """One stretch of training.

    ``loss(model, ids, weights)`` is made small over ``steps`` of ``batches``, with a
    learning rate that decays to ``last_rate`` times ``learning_rate``; ``measure()``
    gives what a report shows besides the loss.
    """

    name: str
    batches: Iterator[Batch]
    loss: Loss
    measure: Callable[[], dict[str, float]]
    steps: int
    learning_rate: float
    last_rate: float


def fit(model: nn.Module, phase: Phase) -> list[float]:
    """Train ``model`` in place, show the progress and return the loss of every step."""
    step = _compiled_step(model, phase)
    losses: list[float] = []
    started = time.perf_counter()
    with Progress() as progress:
        bar = progress.add_task(phase.name, total=phase.steps)
        for _ in range(phase.steps):
            losses.append(step(*next(phase.batches)))
            progress.update(bar, advance=1, description=f"{phase.name} loss {losses[-1]:.4f}")
            if len(losses) % _STEPS_PER_REPORT == 0 or len(losses) == phase.steps:
                progress.console.print(_report(phase, losses, time.perf_counter() - started))
    return losses


def _compiled_step(model: nn.Module, phase: Phase) -> Callable[[mx.array, mx.array], float]:
    warm_up = min(_WARM_UP_STEPS, max(1, phase.steps // 10))
    rate = optim.join_schedules(
        [
            optim.linear_schedule(phase.learning_rate * 0.02, phase.learning_rate, warm_up),
            optim.cosine_decay(
                phase.learning_rate,
                max(1, phase.steps - warm_up),
                phase.learning_rate * phase.last_rate,
            ),
        ],
        [warm_up],
    )
    optimizer = optim.AdamW(learning_rate=rate, betas=[0.9, 0.95], weight_decay=0.01)
    state = [model.state, optimizer.state]

    # The fused kernels of fast_math only stay fused when the whole step is compiled.
    @partial(mx.compile, inputs=state, outputs=state)
    def update(ids: mx.array, weights: mx.array) -> mx.array:
        loss, gradients = nn.value_and_grad(model, phase.loss)(model, ids, weights)
        clipped, _ = optim.clip_grad_norm(gradients, 1.0)
        optimizer.update(model, clipped)
        return cast("mx.array", loss)

    def step(ids: mx.array, weights: mx.array) -> float:
        loss = update(ids, weights)
        mx.eval(loss, state)
        return float(cast("float", loss.item()))

    return step


def _report(phase: Phase, losses: list[float], seconds: float) -> str:
    recent = losses[-_STEPS_PER_REPORT:]
    measured = {"loss": sum(recent) / len(recent)} | {
        f"held-out {name}": value for name, value in phase.measure().items()
    }
    values = ", ".join(f"{name} {value:.4f}" for name, value in measured.items())
    return f"{phase.name} {len(losses)}/{phase.steps}: {values}, {seconds:.0f} s"
