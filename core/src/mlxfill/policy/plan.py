"""Whether a window pays, and how long it should be: cost, acceptance and budget decide.

The unit of cost is one plain step of all rows.  A window of n ids costs c(n) and yields, in each
row, one token and the guesses before the first wrong one.  The plan is the size that yields most
for its cost, so that on hardware where n ids cost n steps speculation stays off.  Rows decide
together, since a window costs what its longest row costs.  What may be lost when the estimates are
wrong is the budget's to say.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from attrs import define, frozen

from mlxfill.policy.budget import MOST_OWED, SpeculationBudget
from mlxfill.policy.constants import CAUTION, ENOUGH, EXPLORE, MARGIN, OUTLIER, RETIME

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mlxfill.policy.cost import CostCurve


@frozen
class Candidate:
    """What one row could put into a window.

    ``known``: ids that enter in any case, the pending one included; ``limit``: most drafts after
    them; ``rate(i)``: how likely draft i is right once those before it were; ``lower_rate(i)``:
    what may be staked on that; ``draft_cost``: of each and ``round_cost`` of all of them together,
    and ``catch_up``: of telling the drafter what it missed, in plain steps of all rows; ``proven``:
    most drafts of a round whose time is known.
    """

    known: int = 1
    limit: int = 0
    rate: Callable[[int], float] = lambda _: 0.0
    draft_cost: float = 0.0
    round_cost: float = 0.0
    catch_up: float = 0.0
    proven: int = 0
    lower_rate: Callable[[int], float] = lambda _: 0.0

    def drafted(self, size: int) -> int:
        """Drafts in a window of ``size`` ids."""
        return min(max(size - self.known, 0), self.limit)

    def drafting(self, size: int) -> float:
        """What the drafts of a window of ``size`` ids cost."""
        drafted = self.drafted(size)
        return drafted * self.draft_cost + self.round_cost * (drafted > 0)

    def outlook(self, size: int) -> tuple[float, float]:
        """Tokens that a window of ``size`` ids yields, and how likely nothing is refused."""
        intact = 1.0
        tokens = float(size - 1 if size < self.known else self.known)
        for draft in range(self.drafted(size)):
            intact *= self.rate(draft)
            tokens += intact
        return tokens, intact


@define
class Plan:
    """What one round should do: ``depth`` drafted ids, ``gain`` steps saved by it.

    ``size``: ids of the window in all; fewer than some row knows where the others would pay for it.

    ``expected_speedup``: tokens that it yields for those of plain steps that cost as much;
    ``explores``: it is made to find out.
    """

    depth: int = 0
    gain: float = 0.0
    expected_speedup: float = 1.0
    explores: bool = False
    size: int = 1


@frozen
class Outcome:
    """What became of one row's part of a window: known ids, drafted ids, accepted ones."""

    known: int
    drafted: int
    accepted: int


def best_plan(
    rows: Sequence[Candidate], curve: CostCurve, budget: float = math.inf, stall: float = 0.0
) -> Plan:
    """The size that promises most, of those whose ``shortfall`` the ``budget`` covers.

    ``stall``: steps lost when the host waits before it dispatches.
    """
    sure = max(row.known for row in rows)
    most = max(row.known + row.limit for row in rows)
    plain = max((_outlook(rows, size, curve) for size in range(1, sure + 1)), key=_speed)
    drafted = [
        _outlook(rows, size, curve)
        for size in range(sure + 1, most + 1)
        if _covered(rows, size, max_loss(rows, size, curve, stall), budget)
    ]
    best = max(drafted, key=_speed, default=plain)
    if _speed(best) <= MARGIN * _speed(plain):
        return Plan(size=plain.size)
    gain = best.tokens / len(rows) - best.cost
    return Plan(best.size - sure, gain, _speed(best) / _speed(plain), size=best.size)


@frozen
class Outlook:
    """A window of ``size`` ids yields so many ``tokens`` and costs so many steps."""

    size: int
    tokens: float
    cost: float


def _speed(outlook: Outlook) -> float:
    return outlook.tokens / outlook.cost


def _outlook(rows: Sequence[Candidate], size: int, curve: CostCurve) -> Outlook:
    tokens, intact = zip(*(row.outlook(size) for row in rows), strict=True)
    drafting = sum(row.drafting(size) for row in rows)
    rewound = curve.rewind * (1.0 - math.prod(intact))
    return Outlook(size, sum(tokens), curve.cost(size) * (1.0 + rewound) + drafting)


def max_loss(rows: Sequence[Candidate], size: int, curve: CostCurve, stall: float) -> float:
    """Steps that a window loses if no draft is right.

    A size without proof costs what it may; so does a drafter of which no round was timed.
    """
    drafting = sum(row.drafting(size) for row in rows)
    loss = curve.rewind * min(curve.cost(size), size) - curve.cost(max(row.known for row in rows))
    waiting = 2 * stall  # before the host goes into the window, and out of it
    if all(row.drafted(size) <= row.proven for row in rows):
        loss += curve.cost(size) + drafting + waiting
    elif drafting:
        loss += curve.bound(size) + CAUTION * (max(drafting, 0.0) + waiting)
    else:
        loss += curve.bound(size) + waiting
    return loss + sum(row.catch_up for row in rows)


def _covered(rows: Sequence[Candidate], size: int, loss: float, budget: float) -> bool:
    """Whether the budget covers a window that may lose so much: all of it, or what is at risk.

    Where drafts were right again and again it is unlikely that none is; what a request may owe is
    the most that one window may lose.
    """
    return loss <= budget or (loss <= MOST_OWED and CAUTION * shortfall(rows, size, loss) <= budget)


def shortfall(rows: Sequence[Candidate], size: int, loss: float) -> float:
    """Steps that a window loses on average where it loses any, by the lower rates of its drafts.

    ``loss``: with no draft right; each right one makes it a step less, of all rows together.
    """
    expected, intact, saved_so_far = 0.0, 1.0, 0.0
    for draft in range(size):
        drafting = [row for row in rows if draft < row.drafted(size)]
        if not drafting or saved_so_far >= loss:
            break
        right = min(row.lower_rate(draft) for row in drafting)
        expected += intact * (1.0 - right) * (loss - saved_so_far)
        intact *= right
        saved_so_far += len(drafting) / len(rows)
    return expected + intact * max(loss - saved_so_far, 0.0)


def saved(
    rows: Sequence[Outcome],
    curve: CostCurve,
    drafting: float = 0.0,
    measured: float | None = None,
) -> float:
    """Steps that the drafts of a window saved for its rows, negative where they lost.

    ``drafting``: what the drafts should have cost; ``measured``: what the round did cost, where a
    clock tells.
    """
    cost, refused = measured, any(row.accepted < row.drafted for row in rows)
    if cost is None:
        size = max(row.known + row.drafted for row in rows)
        cost = curve.cost(size) * (1.0 + (curve.rewind if refused else 0.0)) + drafting
    without = curve.cost(max(row.known for row in rows))
    return sum(row.accepted for row in rows) / len(rows) - (cost - without)


class Gate:
    """Decides for one request; rows share the first one's."""

    def __init__(
        self, curve: CostCurve, *, enabled: bool = True, budget: SpeculationBudget | None = None
    ) -> None:
        """``enabled`` False: always as deep as offered.  ``budget``: the engine's, renewed here."""
        self.curve = curve
        self.enabled = enabled
        self.budget = budget or SpeculationBudget()
        self.budget.renew()
        self._timing = 0

    @property
    def stall(self) -> float:
        """The share of a step that is lost when the host waits before it dispatches."""
        return self.curve.stall

    @property
    def blind(self) -> bool:
        """Whether the clock would have to say it, and too few plain steps were timed."""
        return self.enabled and not self.curve.fixed and not self.curve.step_ms

    def plan(self, candidate: Candidate) -> Plan:
        """Depth 0 to the candidate's limit."""
        if not self.enabled:
            return Plan(candidate.limit, float(candidate.limit), math.inf)
        if candidate.limit <= 0 or self.blind:
            return Plan()
        return best_plan([candidate], self.curve, self.budget.steps, self.stall)

    def exploration(self, candidate: Candidate, *, costs: bool) -> Plan:
        """The deepest round that may be lost; one draft where it is not to find out ``costs``."""
        if not self.enabled or self.blind:
            return Plan()
        affordable = [
            depth
            for depth in range(1, (candidate.limit if costs else min(candidate.limit, 1)) + 1)
            if max_loss([candidate], candidate.known + depth, self.curve, self.stall)
            <= self.budget.steps
        ]
        return Plan(max(affordable), explores=True) if affordable else Plan()

    def plan_offer(self, candidate: Candidate, *, due: bool) -> Plan:
        """The same for a source, whose first ids plain steps judge for nothing.

        Where they are likely, and it is ``due``, a window that should not pay is tried.
        """
        plan = self.plan(candidate)
        if plan.depth or not due or self.curve.fixed or candidate.rate(0) <= EXPLORE:
            return plan
        return self.exploration(candidate, costs=True)

    @property
    def recalibrates(self) -> bool:
        """Whether to leave rounds to plain steps, so that the clock knows what those cost."""
        if self.enabled and not self.curve.fixed and self.curve.windows >= RETIME:
            self._timing, self.curve.windows = ENOUGH, 0
        return self._timing > 0

    def stepped(self) -> None:
        """A plain step was read."""
        self._timing = max(self._timing - 1, 0)

    def charge(
        self,
        rows: Sequence[Outcome],
        curve: CostCurve,
        *,
        drafting: float = 0.0,
        seconds: float = 0.0,
        bound: float = 1.0,
    ) -> float:
        """Book a round, by the clock where it took ``seconds`` and the clock decides.

        A stall counts no more than ``OUTLIER`` times the steps that it might have cost at most.

        :returns: steps that were won.
        """
        measured = None
        if seconds and self.enabled and curve.timed:
            measured = max(min(seconds * 1e3 / curve.step_ms, OUTLIER * bound), 1.0)
        won = saved(rows, curve, drafting, measured)
        self.budget.spend(-won)
        return won
