"""Paired measurements of mlxfill: recorded sessions, replayed by several sets of plugins.

::

    sessions = mlxfill_bench.read_sessions("sessions.jsonl")
    with mlxfill_bench.open_arms("tiny", ["plain", "spec-ngram"], config) as arms:
        replayed = mlxfill_bench.playback(sessions, arms, rounds=3)
    for verdict in mlxfill_bench.verdicts(replayed):
        print(verdict.arm, verdict.harm, verdict.speed.ratio)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mlxfill_bench.arms import PLAIN, open_arms
    from mlxfill_bench.playback import Answer, Replayed, replay
    from mlxfill_bench.sessions import SHIPPED, Session, Turn, read_sessions
    from mlxfill_bench.verdict import Harm, Speed, Verdict, verdicts

__all__ = [
    "PLAIN",
    "SHIPPED",
    "Answer",
    "Harm",
    "Replayed",
    "Session",
    "Speed",
    "Turn",
    "Verdict",
    "open_arms",
    "read_sessions",
    "replay",
    "verdicts",
]

_HOMES = {
    "arms": {"PLAIN", "open_arms"},
    "playback": {"Answer", "Replayed", "replay"},
    "sessions": {"SHIPPED", "Session", "Turn", "read_sessions"},
    "verdict": {"Harm", "Speed", "Verdict", "verdicts"},
}


def __getattr__(name: str) -> object:
    """Import a public name on first use (PEP 562): every start of mlxfill imports this package."""
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"mlxfill_bench.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
