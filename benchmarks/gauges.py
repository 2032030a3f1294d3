"""Costs that stand on their own: one lookup, one rewind, one start of the program."""

from __future__ import annotations

import functools
import statistics
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import blas

if TYPE_CHECKING:
    from lookup import LookupCost

PLUGINS = 50
HELP, DISCOVERY = "help", f"discovery, {PLUGINS} plugins"
"""Rows of the start-up benchmark."""
STARTS = 9
"""Times that the program is started; the median counts."""


@dataclass(frozen=True)
class Reading:
    """A value to judge, and both sides as the table shows them (``theirs`` may be empty)."""

    value: float
    ours: str
    theirs: str = ""


def tiny_folder() -> Path:
    """Find the embedded tiny target."""
    return Path(str(resources.files("mlxfill_model_tiny"))) / "models" / "target"


def lookup(part: Literal["propose_new", "append", "build"]) -> Reading:
    """Look up, append or build as ``spec-ngram`` does by default, on a long history."""
    from lookup import BUILT, LONGEST

    cost = _lookup_cost(BUILT if part == "build" else LONGEST)
    value: float = getattr(cost, part)
    return Reading(value, f"{value:.3g} {'ms' if part == 'build' else 'us'}")


@functools.cache
def _lookup_cost(length: int) -> LookupCost:
    from lookup import measure
    from mlxfill_spec_ngram import NgramSettings

    return measure(length, NgramSettings().match)


def rewind(size: int) -> Reading:
    """Take half of a window of ``size`` ids back, relative to its forward."""
    from rewind import measure

    (cost,) = measure(tiny_folder(), (size,))
    added = f"{cost.added_ms:.2f} ms added to a round"
    return Reading(
        cost.alone, f"{cost.alone_ms:.2f} ms, {added}", f"{cost.forward_ms:.2f} ms, the forward"
    )


def start_up(row: str) -> Reading:
    """Start the program: ``HELP`` shows its help, ``DISCOVERY`` finds the installed plugins."""
    seconds = statistics.median(_start_ups()[row])
    value, unit = (seconds, "s") if row == HELP else (1e3 * seconds, "ms")
    return Reading(value, f"{value:.3g} {unit}")


@functools.cache
def _start_ups() -> dict[str, list[float]]:
    import startup

    # A user's program starts without a library put first.
    with blas.removed():
        return startup.measure(STARTS, PLUGINS)
