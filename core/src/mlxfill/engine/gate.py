"""When a window of several ids pays: cost curve, acceptance statistics, and the choice of depth.

The unit of cost is one plain step.  A window of n ids costs c(n); with d drafted ids
it yields 1 + (accepted) tokens.  The gate picks the d that maximises expected tokens per
cost, 0 included, so that on hardware where n ids cost n steps speculation stays off.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque
from statistics import median
from typing import TYPE_CHECKING

from attrs import define, field

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

MARGIN = 1.03
"""A window must promise this much more per cost than a plain step: estimates are noisy."""
UNLIKELY = 0.02
FOLLOW = 0.15
"""Weight of a newly observed window time in the running cost of its size."""
NEWEST = 9
"""Times that count: those that another process held up must not decide."""
EXPLORE_DEPTH = 7
EXPLORE_EVERY = 32
"""Where drafts are almost surely right a window costs little more than its tokens are worth even
when n ids cost n steps, so a closed gate tries one now and then: costs may have been
measured on a busy machine."""
SURE = 0.85
STAKE = 1.0
"""Steps that a request may lose on windows before any was won."""
INTEREST, MOST_SAVED = 0.01, 4.0
"""Steps that each plain step adds to the purse, and the most that interest and earlier requests
leave in it."""


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

    @property
    def step_ms(self) -> float:
        """Wall time of a plain step: the median of the newest, 0 before the first."""
        return median(self._steps) if self._steps else 0.0

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
            return
        step_ms = self.step_ms
        if not step_ms:
            return
        known, before = self.cost(n), self.seen.get(n, 0)
        # An outlier (another process, a page fault) may not move the curve far at once.
        cost = min(ms / step_ms, 3 * known)
        self.points[n] = known + max(FOLLOW, 0.5 / (1 + before)) * (cost - known)
        self.seen[n] = before + 1
        self._table.clear()


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

    One object a producer.  Exponential decay per bucket; a prior speaks until there is
    evidence.  Positions judged while the gate is closed count as well: a plain step
    tells for free whether the proposal's first id was right.
    """

    trials: list[float] = field(factory=lambda: [PRIOR_WEIGHT] * len(BUCKETS))
    hits: list[float] = field(factory=lambda: [PRIOR_WEIGHT * p for p in PRIOR])

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

    ``ratio``: tokens that a round so deep yields per plain step that it costs.
    """

    depth: int
    gain: float
    ratio: float = 1.0


NOTHING = Plan(0, 0.0)


@define
class Purse:
    """Steps that may be lost on windows: a stake, interest on plain steps, and what was won.

    Estimates may be wrong.  The gate never bets more than is in the purse, so a request cannot
    become slower by more than that, whatever a source offers.
    """

    steps: float = STAKE

    def renew(self) -> None:
        """A request begins: at least the stake, at most what may be saved."""
        self.steps = min(max(self.steps, STAKE), MOST_SAVED)

    def stepped(self, steps: int = 1) -> None:
        """So many plain steps went by."""
        if self.steps < MOST_SAVED:
            self.steps = min(self.steps + steps * INTEREST, MOST_SAVED)


class Gate:
    """Chooses the depth of a round from the cost curve and a producer's statistics."""

    def __init__(
        self, curve: CostCurve, *, enabled: bool = True, purse: Purse | None = None
    ) -> None:
        """``enabled`` False: always as deep as offered.  ``purse``: the engine's, renewed here."""
        self.curve = curve
        self.enabled = enabled
        self.purse = purse or Purse()
        self.purse.renew()
        self._closed_on_sure = 0

    def plan(  # noqa: PLR0913 - what is known of the producer, and of the window
        self,
        survival: Survival,
        evidence: int,
        limit: int,
        known: int = 1,
        *,
        draft_cost: Callable[[int], float] | None = None,
        credit: float = 0.0,
    ) -> Plan:
        """Depth 0 to ``limit`` after ``known`` ids that enter anyway.

        ``draft_cost``: of a depth the cost of each draft, in plain steps; None: they cost nothing.
        ``credit``: steps that a producer with a record of its own may lose beyond the purse.
        """
        if not self.enabled:
            return Plan(limit, float(limit), math.inf)
        curve, expected, alive = self.curve, 1.0, 1.0
        best, depth, gain = MARGIN, 0, 0.0
        for d in range(1, limit + 1):
            alive *= survival.rate(evidence + d - 1)
            if alive < UNLIKELY:
                break
            expected += alive
            drafting = d * draft_cost(d) if draft_cost else 0.0
            if self._loss(known, d) + drafting > self.purse.steps + credit:
                continue
            cost = curve.cost(known + d) * (1.0 + curve.rewind * (1.0 - alive)) + drafting
            cost -= curve.cost(known) - 1.0  # the known ids are paid for in any case
            if expected > best * cost:
                best, depth, gain = expected / cost, d, expected - cost
        if depth:
            return Plan(depth, gain, best)
        return self._explore(survival, evidence, limit) if draft_cost is None else NOTHING

    def _explore(self, survival: Survival, evidence: int, limit: int) -> Plan:
        """A try of a closed gate when it is due; due until ``observed``."""
        if limit < EXPLORE_DEPTH or survival.rate(evidence) ** EXPLORE_DEPTH < SURE:
            return NOTHING
        if self._loss(1, EXPLORE_DEPTH) > self.purse.steps:
            return NOTHING
        self._closed_on_sure += 1
        return Plan(EXPLORE_DEPTH, 1.0) if self._closed_on_sure > EXPLORE_EVERY else NOTHING

    def _loss(self, known: int, drafted: int) -> float:
        """Steps lost by a window in which no draft is right, what drafts cost apart."""
        curve = self.curve
        return curve.cost(known + drafted) * (1.0 + curve.rewind) - curve.cost(known)

    def settle(self, drafted: int, accepted: int, draft_cost: float = 0.0) -> None:
        """A window after one known id won ``accepted`` tokens: book gain or loss."""
        curve = self.curve
        rewound = curve.rewind if accepted < drafted else 0.0
        cost = curve.cost(1 + drafted) * (1.0 + rewound) + drafted * draft_cost
        self.purse.steps += 1 + accepted - cost
        self._closed_on_sure = 0

    def pay(self, steps: float) -> bool:
        """Take ``steps`` out of the purse, if they are there."""
        if self.enabled and steps > self.purse.steps:
            return False
        self.purse.steps -= steps
        return True

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
