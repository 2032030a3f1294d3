"""How large the next common window should be.

A window costs what its longest row costs, so rows decide together: a size that one row wins by
may lose for three that only ride along.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from attrs import frozen

from mlxfill.policy.constants import MARGIN
from mlxfill.policy.cost import CostCurve

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


@frozen
class Chance:
    """What one row could put into a window.

    ``known``: ids that enter in any case, the pending one included; ``limit``: most drafts after
    them; ``rate(i)``: how likely draft i is right once those before it were; ``draft_cost``: of
    one, in plain steps of all rows.
    """

    known: int
    limit: int = 0
    rate: Callable[[int], float] = lambda _: 0.0
    draft_cost: float = 0.0

    def prospects(self, most: int) -> Iterator[Prospect]:
        """What the row may expect of windows of 1 to ``most`` ids."""
        tokens, intact, drafting = 0.0, 1.0, 0.0
        for size in range(1, most + 1):
            draft = size - self.known - 1
            if size < self.known:
                tokens = size - 1.0
            elif draft < 0:
                tokens = float(size)
            elif draft < self.limit:
                intact *= self.rate(draft)
                tokens += intact
                drafting += self.draft_cost
            yield Prospect(tokens, intact, drafting)


@frozen
class Prospect:
    """Of one row: new ``tokens``, how likely nothing is refused, the cost of its drafts."""

    tokens: float
    intact: float
    drafting: float


def window_size(
    chances: Sequence[Chance], curve: CostCurve, *, budget: float, enabled: bool = True
) -> int:
    """Ids in the next window: the size with the most expected tokens per cost, 1 for a plain step.

    ``curve``: cost of a window for this many rows, relative to their plain step; ``budget``: steps
    that may be lost when no draft is right.
    """
    most = max(chance.known + chance.limit for chance in chances)
    if not enabled:
        return most
    sure = max(chance.known for chance in chances)
    best, chosen = 0.0, 1
    every = zip(*(chance.prospects(most) for chance in chances), strict=True)
    for size, rows in enumerate(every, 1):
        drafting = sum(row.drafting for row in rows)
        intact = math.prod(row.intact for row in rows)
        cost = curve.cost(size)
        loss = curve.worst(size) * (1.0 + curve.rewind) - curve.cost(sure) + drafting
        if size > sure and loss > budget:
            continue
        cost = cost * (1.0 + curve.rewind * (1.0 - intact)) + drafting
        gain = sum(row.tokens for row in rows) / cost
        if gain > best * (MARGIN if chosen == 1 else 1.0):
            best, chosen = gain, size
    return chosen


def won_by(
    counts: Sequence[tuple[int, int, int]],
    curve: CostCurve,
    drafting: float = 0.0,
    cost: float | None = None,
) -> float:
    """Steps that the drafts of a window won for its rows, negative where they lost.

    ``counts``: known ids, drafted ids and accepted ones of each row; ``curve`` as above;
    ``drafting``: what the drafts cost, in plain steps of all rows; ``cost``: what the round did
    cost, where a clock tells.
    """
    size = max(known + drafted for known, drafted, _ in counts)
    without = curve.cost(max(known for known, _, _ in counts))
    refused = any(accepted < drafted for _, drafted, accepted in counts)
    if cost is None:
        cost = curve.cost(size) * (1.0 + (curve.rewind if refused else 0.0)) + drafting
    return sum(accepted for _, _, accepted in counts) / len(counts) - (cost - without)


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
