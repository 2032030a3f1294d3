"""How large the next common window should be.

A window costs what its longest row costs, so rows decide together: a size that one row wins by
may lose for three that only ride along.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen

from mlxfill.engine.gate import MARGIN, CostCurve

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


@frozen
class Chance:
    """What one row could put into a window.

    ``known``: ids that enter in any case, the pending one included; ``limit``: most drafts after
    them; ``rate(i)``: how likely draft i is right once those before it were; ``draft_cost``: of
    one, in plain steps.
    """

    known: int
    limit: int = 0
    rate: Callable[[int], float] = lambda _: 0.0
    draft_cost: float = 0.0

    def wins(self, most: int) -> list[float]:
        """Expected new tokens for every window size from 0 to ``most``."""
        wins, alive = [0.0], 1.0
        for size in range(1, most + 1):
            draft = size - self.known - 1
            if size < self.known:
                wins.append(size - 1.0)
            elif draft < 0:
                wins.append(float(size))
            elif draft < self.limit:
                alive *= self.rate(draft)
                wins.append(wins[-1] + alive - self.draft_cost)
            else:
                wins.append(wins[-1])
        return wins


def window_size(
    chances: Sequence[Chance], curve: CostCurve, *, purse: float, enabled: bool = True
) -> int:
    """Ids in the next window: the size with the most expected tokens per cost, 1 for a plain step.

    ``curve``: cost of a window for this many rows, relative to their plain step; ``purse``: steps
    that may be lost when no draft is right.
    """
    most = max(chance.known + chance.limit for chance in chances)
    if not enabled:
        return most
    wins = [sum(each) for each in zip(*(chance.wins(most) for chance in chances), strict=True)]
    sure = max(chance.known for chance in chances)
    best, size = wins[1], 1
    for s in range(2, most + 1):
        cost = curve.cost(s) * (1.0 + (curve.rewind if s > sure else 0.0))
        if s > sure and cost - 1.0 > purse:
            continue
        if wins[s] / cost > best * (MARGIN if size == 1 else 1.0):
            best, size = wins[s] / cost, s
    return size


def curve_for_rows(curve: CostCurve, rows: int) -> CostCurve:
    """First estimate for ``rows`` rows: a window of n ids in each is one of ``rows * n`` ids.

    Refined by the time of real windows, as the curve of one row is.
    """
    if curve.fixed:
        return curve
    sizes = (1, 2, 4, 8, 16, 32)
    base = curve.cost(rows)
    points = {n: max(curve.cost(rows * n) / base, 1.0) for n in sizes}
    return CostCurve(points, rewind=curve.rewind)
