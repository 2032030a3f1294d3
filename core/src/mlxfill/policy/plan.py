"""Whether a window pays, and how deep: cost, acceptance and budget decide.

The unit of cost is one plain step.  A window of n ids costs c(n); with d drafted ids
it yields 1 + (accepted) tokens.  The gate picks the d that maximises expected tokens per
cost, 0 included, so that on hardware where n ids cost n steps speculation stays off.  What may be
lost when the estimates are wrong is the budget's to say.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from attrs import define, frozen

from mlxfill.policy.budget import SpeculationBudget
from mlxfill.policy.constants import BUBBLE, LIKELY, MARGIN, UNLIKELY

if TYPE_CHECKING:
    from collections.abc import Callable

    from mlxfill.policy.acceptance import AcceptanceStats
    from mlxfill.policy.cost import CostCurve


@define
class Plan:
    """What one round should do: ``depth`` drafted ids, ``gain`` steps saved by it.

    ``ratio``: tokens that a round so deep yields per plain step that it costs.  ``tries``: it is
    made to find out.
    """

    depth: int
    gain: float
    ratio: float = 1.0
    tries: bool = False


@frozen
class Drafts:
    """What is known of a drafter: the cost of each of ``d`` drafts, in plain steps, and the deepest
    round that was timed (``proven``).

    ``telling``: what it costs to tell it what it missed, as far as the budget has to pay for that;
    ``tried``: the same of a try; ``hopeful``: whether perfect drafts would pay, or nobody knows.
    """

    cost: Callable[[int], float]
    proven: int = 0
    telling: float = 0.0
    tried: float = 0.0
    hopeful: bool = True


NOTHING = Plan(0, 0.0)


class Gate:
    """Chooses the depth of a round from the cost curve and a producer's statistics.

    ``bubble``: the share of a step that is lost when the host waits before it dispatches.
    """

    def __init__(
        self, curve: CostCurve, *, enabled: bool = True, budget: SpeculationBudget | None = None
    ) -> None:
        """``enabled`` False: always as deep as offered.  ``budget``: the engine's, renewed here."""
        self.curve = curve
        self.enabled = enabled
        self.bubble = BUBBLE
        self.budget = budget or SpeculationBudget()
        self.budget.renew()

    @property
    def timed(self) -> bool:
        """Whether the clock says what was won and lost: it does where costs are not given."""
        return not self.curve.fixed and self.curve.step_ms > 0

    @property
    def blind(self) -> bool:
        """Whether the clock would have to say it, and no plain step was timed yet."""
        return self.enabled and not self.curve.fixed and not self.curve.step_ms

    def plan(
        self,
        acceptance: AcceptanceStats,
        evidence: int,
        limit: int,
        known: int = 1,
        drafts: Drafts | None = None,
    ) -> Plan:
        """Depth 0 to ``limit`` after ``known`` ids that enter anyway.

        ``drafts``: what is known of a drafter; None: it is a source, whose drafts cost nothing and
        whose first ids are judged for nothing.
        """
        if not self.enabled:
            return Plan(limit, float(limit), math.inf)
        curve, expected, alive = self.curve, 1.0, 1.0
        best, depth, gain, most = MARGIN, 0, 0.0, 0
        for d in range(1, limit + 1):
            alive *= acceptance.rate(evidence + d - 1)
            drafting = d * drafts.cost(d) if drafts else 0.0
            loss = self._loss(known, d, drafts) + drafting
            most = d if loss + (drafts.tried if drafts else 0.0) <= self.budget.steps else most
            loss += drafts.telling if drafts else 0.0
            if loss > self.budget.steps:
                continue
            if alive < UNLIKELY:
                break
            expected += alive
            cost = curve.cost(known + d) * (1.0 + curve.rewind * (1.0 - alive)) + drafting
            cost -= curve.cost(known) - 1.0  # the known ids are paid for in any case
            if expected > best * cost:
                best, depth, gain = expected / cost, d, expected - cost
        if depth:
            return Plan(depth, gain, best)
        hopeful = (
            drafts.hopeful if drafts else not curve.fixed and acceptance.rate(evidence) > LIKELY
        )
        if most and hopeful and acceptance.retry.due:
            # How deep a right one may go will show; a wrong one shall cost little.
            return Plan(1 if drafts and drafts.proven else most, 0.0, tries=True)
        return NOTHING

    def _loss(self, known: int, drafted: int, drafts: Drafts | None) -> float:
        """Steps that a window may lose in which no draft is right, what drafts cost apart."""
        curve, size = self.curve, known + drafted
        if curve.fixed or (drafts is not None and drafted <= drafts.proven):
            cost = curve.cost(size) * (1.0 + curve.rewind)
        else:
            cost = curve.worst(size) + curve.rewind * min(curve.cost(size), 1.0 + size / 2)
        return cost - curve.cost(known) + 2.0 * self.bubble  # into the window, and out of it

    def settle(self, drafted: int, accepted: int, draft_cost: float = 0.0) -> None:
        """A window after one known id won ``accepted`` tokens: book what it should have cost.

        Where the clock tells, that is booked instead.
        """
        curve = self.curve
        rewound = curve.rewind if accepted < drafted else 0.0
        cost = curve.cost(1 + drafted) * (1.0 + rewound) + drafted * draft_cost
        self.budget.book(1 + accepted - cost)

    def charge(self, seconds: float, tokens: int, most: float = math.inf) -> float:
        """Book ``tokens`` that took so long; a stall counts no more than ``most`` steps.

        :returns: steps that were won.
        """
        won = tokens - max(min(seconds * 1e3 / self.curve.mean_ms, most), 1.0)
        self.budget.book(won)
        return won

    def observed(self, n: int, ms: float) -> None:
        """A window of ``n`` ids, or a plain step, took ``ms``."""
        self.curve.observe(n, ms)
