"""Paired measurements of mlxfill: prompts and recorded sessions, answered by sets of plugins.

::

    plan = mlxfill_bench.Plan(
        model="tiny", prompts=mlxfill_bench.read_prompts("prompts.jsonl"), arms=["spec-ngram"]
    )
    for effect in mlxfill_bench.measure(plan, mlxfill.load_config()).effects:
        print(effect.arm, effect.verdict, effect.speed.ratio)

    sessions = mlxfill_bench.read_sessions("sessions.jsonl")
    with mlxfill_bench.open_arms("tiny", ["plain", "spec-ngram"], config) as arms:
        replayed = mlxfill_bench.replay(sessions, arms, rounds=3)
    for verdict in mlxfill_bench.verdicts(replayed):
        print(verdict.arm, verdict.harm, verdict.speed.ratio)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mlxfill_bench.arms import PLAIN, open_arms
    from mlxfill_bench.effect import Effect, effects
    from mlxfill_bench.figures import Figures, Speed
    from mlxfill_bench.measuring import Measurement, Plan, measure
    from mlxfill_bench.observed import Observed, observe
    from mlxfill_bench.playback import Answer, Answered, Replayed, ask, replay
    from mlxfill_bench.prompts import SAMPLES, Prompt, read_prompts
    from mlxfill_bench.sessions import SHIPPED, Session, Turn, read_sessions
    from mlxfill_bench.verdict import Harm, Verdict, verdicts

_HOMES = {
    "arms": {"PLAIN", "open_arms"},
    "effect": {"Effect", "effects"},
    "figures": {"Figures", "Speed"},
    "measuring": {"Measurement", "Plan", "measure"},
    "observed": {"Observed", "observe"},
    "playback": {"Answer", "Answered", "Replayed", "ask", "replay"},
    "prompts": {"SAMPLES", "Prompt", "read_prompts"},
    "sessions": {"SHIPPED", "Session", "Turn", "read_sessions"},
    "verdict": {"Harm", "Verdict", "verdicts"},
}

__all__ = [
    "PLAIN",
    "SAMPLES",
    "SHIPPED",
    "Answer",
    "Answered",
    "Effect",
    "Figures",
    "Harm",
    "Measurement",
    "Observed",
    "Plan",
    "Prompt",
    "Replayed",
    "Session",
    "Speed",
    "Turn",
    "Verdict",
    "ask",
    "effects",
    "measure",
    "observe",
    "open_arms",
    "read_prompts",
    "read_sessions",
    "replay",
    "verdicts",
]


def __getattr__(name: str) -> object:
    """Import a public name on first use (PEP 562): every start of mlxfill imports this package."""
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"mlxfill_bench.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
