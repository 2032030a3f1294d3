"""When a window of several ids pays: cost curve, acceptance statistics, and the choice of depth.

The unit of cost is one plain step.  A window of n ids costs c(n); with d drafted ids
it yields 1 + (accepted) tokens.  The gate picks the d that maximises expected tokens per
cost, 0 included, so that on hardware where n ids cost n steps speculation stays off.  What may be
lost when the estimates are wrong is the budget's to say.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque
from statistics import median
from typing import TYPE_CHECKING

from attrs import define, field, frozen

from mlxfill.engine.budget import Budget, Tries

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

MARGIN = 1.03
"""A window must promise this much more per cost than a plain step: estimates are noisy."""
UNLIKELY = 0.02
FOLLOW = 0.15
"""Weight of a newly observed window time in the running cost of its size."""
BUBBLE = 0.08
"""First guess at the share of a step that is lost when the host waits before it dispatches."""
STALL, MANY, QUICKER = 2.0, 16, 1.2
"""A time counts no more than so many times what was to be expected: the machine was elsewhere; how
many plain steps say what one costs in the long run; and how far that may be above the newest."""
NEWEST = 9
"""Times that count: those that another process held up must not decide."""
LIKELY = 0.5
"""Where the next id is at least so likely, a window that should not pay is tried now and then:
costs may have been measured on a busy machine."""


@define
class CostCurve:
    """c(n)/c(1): the relative cost of a forward of n ids, learnt and refined while decoding.

    ``points`` maps n to relative cost; between points it is interpolated, beyond the last one
    it continues with the slope of the whole curve.  ``fixed`` curves learn nothing: with one of
    them the number of forwards does not depend on the clock.  ``rewind`` is the cost of a rewind
    relative to the window that it follows (0 for caches that are only trimmed).
    """

    points: dict[int, float] = field(factory=lambda: {1: 1.0})
    rewind: float = 0.0
    fixed: bool = False
    seen: dict[int, int] = field(factory=dict, repr=False, eq=False)
    _table: list[float] = field(factory=list, repr=False, eq=False)
    _steps: deque[float] = field(factory=lambda: deque(maxlen=NEWEST), repr=False, eq=False)
    _many: deque[float] = field(factory=lambda: deque(maxlen=MANY), repr=False, eq=False)

    @property
    def step_ms(self) -> float:
        """Wall time of a plain step: the median of the newest, 0 before the first."""
        return median(self._steps) if self._steps else 0.0

    @property
    def mean_ms(self) -> float:
        """The mean, stalls cut as those of rounds are: what a plain step costs in the long run.

        Where the newest are quicker, the machine may have become so, and they say it.
        """
        if not self._many:
            return 0.0
        most, newest = STALL * self.step_ms, list(self._many)[-2:]
        mean = sum(min(ms, most) for ms in self._many) / len(self._many)
        return min(mean, QUICKER * max(newest))

    @property
    def quiet_step_ms(self) -> float:
        """The same of steps that nothing else held up, to compare with ``quiet`` others."""
        return quiet(self._steps) if self._steps else 0.0

    @classmethod
    def free(cls) -> CostCurve:
        """A curve by which every window pays: speculation always on (tests, forward counts)."""
        return cls({1: 1.0, 1 << 20: 1.0}, fixed=True)

    @classmethod
    def linear(cls) -> CostCurve:
        """A curve by which n ids cost n steps: speculation always off."""
        return cls({1: 1.0, 2: 2.0}, fixed=True)

    def cost(self, n: int) -> float:
        """Relative cost of a window of ``n >= 1`` ids."""
        if n >= len(self._table):
            self._extend(n)
        return self._table[n]

    def worst(self, n: int) -> float:
        """What a window of ``n`` ids may cost, as far as that was proven.

        Real windows prove sizes, their own and all below; each id beyond the largest may cost a
        step, whatever was measured before the first request.
        """
        if self.fixed or n in self.seen:
            return self.cost(n)
        above = min((size for size in self.seen if size > n), default=None)
        if above is not None:
            return max(self.cost(n), min(self.cost(above), n))
        below = max(self.seen, default=1)
        return self.cost(below) + n - below

    def _extend(self, n: int) -> None:
        sizes = sorted(self.points)
        while len(self._table) <= n:
            self._table.append(self._at(len(self._table), sizes))

    def _at(self, n: int, sizes: Sequence[int]) -> float:
        if n in self.points:
            return self.points[n]
        at = bisect_left(sizes, n)
        if at == 0:
            return self.points[sizes[0]]
        if at == len(sizes):
            first, last = sizes[0], sizes[-1]
            per_id = (self.points[last] - self.points[first]) / max(last - first, 1)
            per_id = max(per_id, 0.0)  # noise may make it fall; a window never comes for nothing
            # One point only: nothing known, so assume that ids cost what steps cost.
            return self.points[last] + (n - last) * (per_id if len(sizes) > 1 else 1.0)
        low, high = sizes[at - 1], sizes[at]
        share = (n - low) / (high - low)
        return self.points[low] + share * (self.points[high] - self.points[low])

    def observe(self, n: int, ms: float) -> None:
        """Refine with the wall time of one real window (``n >= 2``) or plain step (``n == 1``)."""
        if self.fixed:
            return
        if n == 1:
            self._steps.append(ms)
            self._many.append(ms)
            return
        step_ms = self.step_ms
        if not step_ms:
            return
        known, before = self.cost(n), self.seen.get(n, 0)
        # An outlier (another process, a page fault) may not move the curve far at once.
        cost = min(ms / step_ms, 3 * known)
        fresh = known + max(FOLLOW, 0.5 / (1 + before)) * (cost - known)
        self._correct_unproven((fresh - 1.0) / max(known - 1.0, 0.01))
        self.points[n] = fresh
        self.seen[n] = before + 1
        self._table.clear()

    def _correct_unproven(self, error: float) -> None:
        """Sizes that only the calibration knows were measured on the machine of that moment."""
        error = min(max(error, 1 / 3), 1.0)  # dearer ones will show themselves, within the budget
        for size, cost in self.points.items():
            if size > 1 and size not in self.seen:
                self.points[size] = 1.0 + error * (cost - 1.0)


BUCKETS = (0, 1, 2, 3, 4, 6, 9, 13, 21, 33)
PRIOR = (0.2, 0.25, 0.5, 0.62, 0.75, 0.85, 0.92, 0.95, 0.97, 0.98)
PRIOR_WEIGHT = 4.0
DECAY = 0.96
_BUCKET_OF = [max(i for i, low in enumerate(BUCKETS) if low <= s) for s in range(BUCKETS[-1])]


def bucket_of(evidence: int) -> int:
    """Statistics bucket of a position that ``evidence`` right tokens led up to."""
    return _BUCKET_OF[evidence] if evidence < len(_BUCKET_OF) else len(BUCKETS) - 1


@define
class Survival:
    """How likely the next proposed id is right, by how many right ones led up to it.

    One object a producer; ``tries`` say when it is tried although it seems not to pay.
    Exponential decay per bucket; a prior speaks until there is evidence.  Positions judged while
    the gate is closed count as well: a plain step tells for free whether the proposal's first id
    was right.
    """

    trials: list[float] = field(factory=lambda: [PRIOR_WEIGHT] * len(BUCKETS))
    hits: list[float] = field(factory=lambda: [PRIOR_WEIGHT * p for p in PRIOR])
    tries: Tries = field(factory=Tries)

    def rate(self, evidence: int) -> float:
        """Estimated probability that the id after ``evidence`` right ones is right."""
        at = bucket_of(evidence)
        return self.hits[at] / self.trials[at]

    def expected(self, depth: int) -> float:
        """Tokens that a round of ``depth`` ids yields."""
        total = alive = 1.0
        for right in range(depth):
            alive *= self.rate(right)
            total += alive
        return total

    def learn(self, evidence: int, hit: bool) -> None:
        """One judged position."""
        at = bucket_of(evidence)
        self.trials[at] = self.trials[at] * DECAY + 1.0
        self.hits[at] = self.hits[at] * DECAY + hit


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
        self, curve: CostCurve, *, enabled: bool = True, budget: Budget | None = None
    ) -> None:
        """``enabled`` False: always as deep as offered.  ``budget``: the engine's, renewed here."""
        self.curve = curve
        self.enabled = enabled
        self.bubble = BUBBLE
        self.budget = budget or Budget()
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
        survival: Survival,
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
            alive *= survival.rate(evidence + d - 1)
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
        hopeful = drafts.hopeful if drafts else not curve.fixed and survival.rate(evidence) > LIKELY
        if most and hopeful and survival.tries.due:
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


def quiet(times: Collection[float]) -> float:
    """A low one of some times: what else a machine does makes them longer, never shorter."""
    return sorted(times)[len(times) // 4]


def points_from(times: Mapping[int, float]) -> dict[int, float]:
    """Times in ms by window size to relative costs, never below that of one id."""
    base = times[1]
    return {n: max(ms / base, 1.0) for n, ms in times.items()}
