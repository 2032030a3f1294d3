"""What a window of several ids costs, in plain steps: measured, then refined by real windows."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from statistics import median
from typing import TYPE_CHECKING

from attrs import define, field

from mlxfill.policy.constants import FOLLOW, MANY, NEWEST, QUICKER, STALL

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence


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


def quiet(times: Collection[float]) -> float:
    """A low one of some times: what else a machine does makes them longer, never shorter."""
    return sorted(times)[len(times) // 4]


def points_from(times: Mapping[int, float]) -> dict[int, float]:
    """Times in ms by window size to relative costs, never below that of one id."""
    base = times[1]
    return {n: max(ms / base, 1.0) for n, ms in times.items()}
