"""How often those who guess are right: statistics of each producer."""

from __future__ import annotations

from attrs import define, field

from mlxfill.policy.budget import RetrySchedule
from mlxfill.policy.constants import BUCKETS, DECAY, PRIOR, PRIOR_WEIGHT

_BUCKET_OF = [max(i for i, low in enumerate(BUCKETS) if low <= s) for s in range(BUCKETS[-1])]


def bucket_of(evidence: int) -> int:
    """Statistics bucket of a position that ``evidence`` right tokens led up to."""
    return _BUCKET_OF[evidence] if evidence < len(_BUCKET_OF) else len(BUCKETS) - 1


@define
class AcceptanceStats:
    """How likely the next proposed id is right, by how many right ones led up to it.

    One object a producer; ``retry`` says when it is tried although it seems not to pay.
    Exponential decay per bucket; a prior speaks until there is evidence.  Positions judged while
    the gate is closed count as well: a plain step tells for free whether the proposal's first id
    was right.
    """

    trials: list[float] = field(factory=lambda: [PRIOR_WEIGHT] * len(BUCKETS))
    hits: list[float] = field(factory=lambda: [PRIOR_WEIGHT * p for p in PRIOR])
    retry: RetrySchedule = field(factory=RetrySchedule)

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

    def record(self, evidence: int, hit: bool) -> None:
        """One judged position."""
        at = bucket_of(evidence)
        self.trials[at] = self.trials[at] * DECAY + 1.0
        self.hits[at] = self.hits[at] * DECAY + hit
