"""Counters and times of a run at a pause, and giving them back to the run that goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from mlxfill.engine.counters import Counters

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mlxfill.engine.runstate import RunState


def tally_of(run: RunState) -> dict[str, Any]:
    """What ``run`` has counted and timed so far, JSON-ready."""
    stats, drafting = run.stats, run.drafting
    return {
        "cached_tokens": stats.cached_tokens,
        "prefill_ms": stats.prefill_ms,
        "decode_ms": stats.decode_ms,
        "forwards": run.forwarder.forwards,
        "counters": attrs.asdict(run.loop.counters),
        "offers": run.session.tally(),
        "drafting": None if drafting is None else drafting.tally(),
    }


def give_back(run: RunState, tally: Mapping[str, Any]) -> None:
    """Let ``run``, which has computed nothing yet, go on counting from ``tally``."""
    stats = run.stats
    stats.cached_tokens = tally["cached_tokens"]
    stats.prefill_ms, stats.decode_ms = tally["prefill_ms"], tally["decode_ms"]
    run.forwarder.forwards = tally["forwards"]
    run.loop.counters = Counters.from_dict(tally["counters"])
    run.session.counts.update(tally["offers"])
    if run.drafting is not None and tally["drafting"] is not None:
        run.drafting.recall(tally["drafting"])
