"""Counters and times of a run at a pause, and giving them back to the run that goes on."""

from __future__ import annotations

import copy
from collections import Counter
from typing import TYPE_CHECKING, Any

import attrs

from mlxfill.errors import CheckpointError
from mlxfill.request.results import Stats

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mlxfill.checkpoint.content import StoredTally
    from mlxfill.decode.runstate import RunState

FOUND_AGAIN = frozenset(
    {
        *("prompt_tokens", "generated_tokens", "target_forwards", "seed", "fill", "spec"),
        *("rounds", "cache_tokens"),
    }
)
"""Fields of ``Stats`` that follow from the request, the tokens and the counters."""
MEASURED = tuple(f.name for f in attrs.fields(Stats) if f.name not in FOUND_AGAIN)
"""All others: stored as they are."""


def tally_of(run: RunState) -> dict[str, Any]:
    """What ``run`` has counted and timed so far, JSON-ready."""
    drafting, phases = run.drafting, run.forwarder.phases
    return {
        "stats": {name: getattr(run.stats, name) for name in MEASURED},
        "forwards": run.forwarder.forwards,
        "counters": attrs.asdict(run.sequence.counters),
        "offers": run.session.tally(),
        "sources": run.session.source_counts(),
        "phases": None if phases is None else dict(phases.ms),
        "drafting": None if drafting is None else drafting.tally(),
    }


def give_back(run: RunState, tally: StoredTally) -> None:
    """Let ``run``, which has computed nothing yet, go on counting from ``tally``.

    :raises CheckpointError: it counts other things than this version does.
    """
    phases = run.forwarder.phases
    _check_names("stats", tally.stats, MEASURED)
    _check_names("offers", tally.offers, run.session.counts)
    _check_names("phases", tally.phases or {}, {} if phases is None else phases.ms)
    for name, value in tally.stats.items():
        setattr(run.stats, name, value)
    if phases is not None:
        phases.ms.update(tally.phases or {})
    run.forwarder.forwards = tally.forwards
    run.sequence.counters = copy.deepcopy(tally.counters)
    run.session.counts.update(tally.offers)
    # What sources count when they are told of the tokens again is not counted twice.
    run.session.counted_before = Counter(tally.sources) - Counter(run.session.source_counts())
    if run.drafting is not None and tally.drafting is not None:
        run.drafting.recall(tally.drafting)


def _check_names(what: str, stored: Iterable[str], known: Iterable[str]) -> None:
    wrong = sorted(set(stored) ^ set(known))
    if wrong:
        raise CheckpointError(f"its tally.{what} and this version differ in {wrong[0]!r}")
