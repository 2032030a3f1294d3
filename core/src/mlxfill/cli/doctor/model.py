"""What mlxfill can do with one model on this machine."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any

from attrs import frozen

from mlxfill.cli.terminal.report import TYPICAL
from mlxfill.disturbance import other_programs

if TYPE_CHECKING:
    from mlxfill.engine import Engine
    from mlxfill.policy.cost import CostCurve

SIZES = (1, 2, 4, 8, 16, 32)


@frozen
class ModelFacts:
    """One model.

    ``split``, ``rewind``: "" when hidden states and logits can be had apart, and when caches can
    be taken back; else the reason why not.  ``caches``: how many entries of each kind.
    ``cost``: time of a forward of n tokens relative to one token, by n; ``believed``: the same as
    it was stored until now, None where nothing was.  ``disturbed``: the load when other programs
    ran, in which case ``cost`` is provisional and the next start measures again; else "".
    ``unkept``: why ``cost`` could not be stored for the next start, "" when it was.
    """

    path: str
    architecture: str
    parameters: int
    dtype: str
    layers: int
    vocabulary: int
    context: int | None
    split: str
    rewind: str
    caches: dict[str, int]
    cost: dict[int, float]
    believed: dict[int, float] | None
    disturbed: str
    unkept: str
    verdict: str


def examine(engine: Engine) -> ModelFacts:
    """Look at the model of an engine; measures the cost curve anew and keeps it."""
    from mlx.utils import tree_flatten

    from mlxfill.policy.calibration import measure, store, stored

    target = engine.target
    leaves: Any = tree_flatten(engine.model.parameters())
    weights = [array for _, array in leaves]
    rewind = engine.no_rewind()
    before = stored(target)
    curve = measure(target)
    return ModelFacts(
        path=str(target.path),
        architecture=str(getattr(engine.model, "model_type", type(engine.model).__module__)),
        parameters=sum(array.size for array in weights),
        dtype=str(Counter(a.dtype for a in weights).most_common(1)[0][0]).removeprefix("mlx.core."),
        layers=target.layer_count,
        vocabulary=target.vocab_size,
        context=engine.context,
        split="" if target.split else target.reason,
        rewind=rewind,
        caches=dict(Counter(type(entry).__name__ for entry in target.new_cache())),
        cost=_sizes(curve),
        believed=None if before is None else _sizes(before),
        disturbed=other_programs(),
        unkept=store(target, curve),
        verdict=verdict(curve, rewind),
    )


def _sizes(curve: CostCurve) -> dict[int, float]:
    return {n: round(curve.cost(n), 2) for n in SIZES}


def verdict(curve: CostCurve, rewind: str) -> str:
    """What the curve means, in one sentence."""
    from mlxfill.policy.constants import MARGIN

    if rewind:
        return f"guesses cannot be tried on this model ({rewind}): speculation stays off"
    cost = curve.cost(TYPICAL)
    needed = max(math.ceil(cost * MARGIN - 1), 1)
    said = f"a window of {TYPICAL} costs {cost:.1f} steps"
    if needed >= TYPICAL - 1:
        return f"{said}: speculation stays off"
    hold = "holds" if needed == 1 else "hold"
    return f"{said}: speculation pays once {needed} of {TYPICAL - 1} guesses {hold}"
