"""Costs that stand on their own: one lookup, one rewind, one start of the program."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from pathlib import Path


@dataclass(frozen=True)
class Reading:
    """A value to judge, and both sides as the table shows them (``theirs`` may be empty)."""

    value: float
    ours: str
    theirs: str = ""


def tiny_folder() -> Path:
    """Find the embedded tiny target."""
    return Path(str(resources.files("mlxfill_model_tiny"))) / "models" / "target"


def rewind(size: int) -> Reading:
    """Take half of a window of ``size`` ids back, relative to its forward."""
    from rewind_cost import rewind_cost

    cost = rewind_cost(tiny_folder(), size)
    return Reading(
        cost.ratio, f"{1e3 * cost.rewind:.2f} ms", f"{1e3 * cost.forward:.2f} ms forward"
    )
