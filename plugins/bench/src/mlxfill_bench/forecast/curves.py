"""What a forward of several tokens costs: named, given by points, or measured on a model."""

from __future__ import annotations

from mlxfill import CostCurve, InputError, load

NAMED = {
    "metal-like": {1: 1.0, 2: 1.10, 4: 1.13, 8: 1.35, 12: 1.49, 16: 1.72, 32: 2.58},
    "free": {1: 1.0, 1 << 20: 1.0},
}
"""Curves by name: like those of Apple's GPUs; every forward at the price of one token."""
SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
"""Tokens of the forwards that are taken from a model's own curve."""


def curve_of(text: str) -> CostCurve:
    """A fixed curve: a name, points as ``2:1.1,8:1.35``, or a model, which is measured.

    :raises InputError: a point is none.
    :raises ModelError: there is no such model.
    """
    if text in NAMED:
        return CostCurve(dict(NAMED[text]), fixed=True)
    if ":" in text:
        return CostCurve({1: 1.0, **dict(_point(part) for part in text.split(","))}, fixed=True)
    with load(text, plugins=[]) as engine:
        return CostCurve({n: engine.forward_cost(n) for n in SIZES}, fixed=True)


def _point(text: str) -> tuple[int, float]:
    try:
        size, cost = text.split(":")
        point = int(size), float(cost)
    except ValueError:
        point = 0, 0.0
    if point[0] < 1 or not 0 < point[1] < float("inf"):
        raise InputError(
            f"--curve: {text!r} is no point: write TOKENS:COST with the cost in forwards of one"
            f" token, as 8:1.35, or name one of {', '.join(NAMED)} or a model"
        )
    return point
