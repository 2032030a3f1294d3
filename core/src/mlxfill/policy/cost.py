"""What a window of several ids costs, in plain steps: measured, then refined by real windows."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from statistics import median, median_low
from typing import TYPE_CHECKING

from attrs import define, field

from mlxfill.policy.constants import ENOUGH, NEWEST, OUTLIER, SIZES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@define
class CostCurve:
    """c(n)/c(1): the relative cost of a forward of n ids, learnt and refined while decoding.

    ``points`` maps n to relative cost; between points it is interpolated, beyond the last one
    it continues with the slope of the whole curve.  ``fixed`` curves learn nothing: with one of
    them the number of forwards does not depend on the clock.  ``rewind`` is the cost of a rewind
    relative to the window that it follows (0 for caches that are only trimmed).  ``windows``:
    since a plain step was timed; ``stall``: the share of one that is lost when the host waits;
    ``step_ms``: wall time of one, the median of the newest, 0 before there are enough; ``base``:
    what one of all rows costs, in steps of a single one.

    How deep the context is needs no point of its own: costs are relative to plain steps of now.
    """

    points: dict[int, float] = field(factory=lambda: {1: 1.0})
    rewind: float = 0.0
    fixed: bool = False
    seen: dict[int, int] = field(factory=dict, repr=False, eq=False)
    windows: int = field(default=0, repr=False, eq=False)
    stall: float = field(default=0.0, repr=False, eq=False)
    step_ms: float = field(default=0.0, init=False, repr=False, eq=False)
    base: float = field(default=1.0, repr=False, eq=False)
    _table: list[float] = field(factory=list, repr=False, eq=False)
    _steps: deque[float] = field(factory=lambda: deque(maxlen=NEWEST), repr=False, eq=False)
    _rows: dict[int, CostCurve] = field(factory=dict, repr=False, eq=False)

    @classmethod
    def free(cls) -> CostCurve:
        """A curve by which every window pays: speculation always on (tests, forward counts)."""
        return cls({1: 1.0, 1 << 20: 1.0}, fixed=True)

    @classmethod
    def linear(cls) -> CostCurve:
        """A curve by which n ids cost n steps: speculation always off."""
        return cls({1: 1.0, 2: 2.0}, fixed=True)

    def for_rows(self, rows: int) -> CostCurve:
        """The curve of ``rows`` rows: a window of n ids in each is at first one of ``rows * n``.

        It is kept, and refined by windows of as many rows.
        """
        if self.fixed or rows == 1:
            return self
        if rows not in self._rows:
            sizes, base = sorted({1, *SIZES}), self.cost(rows)
            points = {n: max(self.cost(rows * n) / base, 1.0) for n in sizes}
            self._rows[rows] = CostCurve(points, rewind=self.rewind, base=base)
        return self._rows[rows]

    @property
    def timed(self) -> bool:
        """Whether the clock says what was won and lost: it does where costs are not given."""
        return not self.fixed and self.step_ms > 0

    def cost(self, n: int) -> float:
        """Relative cost of a window of ``n >= 1`` ids."""
        if n >= len(self._table):
            sizes = sorted(self.points)
            self._table += [self._at(each, sizes) for each in range(len(self._table), n + 1)]
        return self._table[n]

    def bound(self, n: int) -> float:
        """What a window of ``n`` ids may cost, as far as that was proven.

        Real windows prove sizes, their own and all below; each id beyond the largest may cost a
        step, whatever was measured before the first request.  A second one is believed to cost
        what was measured, if that is less.
        """
        if self.fixed or n in self.seen:
            return self.cost(n)
        proven = max(self.seen, default=2)
        known = self.cost(proven) if self.seen else min(self.cost(2), 2.0)
        return known + n - proven if n >= proven else max(self.cost(n), min(known, n))

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
            self.step_ms = median(self._steps) if len(self._steps) >= ENOUGH else 0.0
            self.windows = 0
        elif self.step_ms:
            self._refine(n, ms / self.step_ms)

    def _refine(self, n: int, steps: float) -> None:
        known, before = self.cost(n), self.seen.get(n, 0)
        weight = max(1 / NEWEST, 1 / (2 + 2 * before))
        # An outlier (another process, a page fault) may not move the curve far at once.
        fresh = known + weight * (min(steps, OUTLIER * known) - known)
        self.seen[n] = before + 1
        # Sizes that only the calibration knows were measured on the machine of that moment.  Dearer
        # ones will show themselves, within the budget.
        error = min(max((fresh - 1.0) / max(known - 1.0, 0.01), 1 / OUTLIER), 1.0)
        for size in self.points.keys() - self.seen.keys() - {1}:
            self.points[size] = 1.0 + error * (self.points[size] - 1.0)
        self.points[n] = fresh
        self._table.clear()


def typical(times: Sequence[float]) -> float:
    """A middle one of some times, the lower of two: machines are held up, never hurried."""
    return median_low(times)


def points_from(times: Mapping[int, float]) -> dict[int, float]:
    """Times in ms by window size to relative costs, never below that of one id."""
    base = times[1]
    return {n: max(ms / base, 1.0) for n, ms in times.items()}
