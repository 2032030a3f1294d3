"""How often those who guess are right: statistics of each producer."""

from __future__ import annotations

from attrs import define, field

from mlxfill.policy.budget import RetrySchedule
from mlxfill.policy.constants import DECAY, PRIOR, TRAINED, WEIGHT

_BUCKETS = tuple(PRIOR)
_BUCKET_OF = [max(i for i, low in enumerate(_BUCKETS) if low <= n) for n in range(_BUCKETS[-1])]


def bucket_of(match_length: int) -> int:
    """Statistics bucket of a position that ``match_length`` right tokens led up to."""
    return _BUCKET_OF[match_length] if match_length < len(_BUCKET_OF) else len(_BUCKETS) - 1


@define
class AcceptanceStats:
    """How likely a producer's next id is right, by how many right ones led up to it.

    ``retry`` says when it is tried although it seems not to pay.  Exponential decay per bucket; a
    prior speaks until there is evidence.  Positions judged while the gate is closed count as well:
    a plain step tells for free whether the proposal's first id was right.
    """

    trials: list[float] = field(factory=lambda: [WEIGHT] * len(_BUCKETS))
    hits: list[float] = field(factory=lambda: [WEIGHT * rate for rate in PRIOR.values()])
    retry: RetrySchedule = field(factory=RetrySchedule)

    @classmethod
    def trained(cls) -> AcceptanceStats:
        """Of a trained drafter: hopes are high at first, but one round counts as much."""
        return cls([1.0] * len(_BUCKETS), [TRAINED] * len(_BUCKETS))

    def rate(self, match_length: int) -> float:
        """Estimated probability that the id after ``match_length`` right ones is right."""
        at = bucket_of(match_length)
        return self.hits[at] / self.trials[at]

    def lower_rate(self, match_length: int) -> float:
        """The same as if one more had been wrong: what may be staked on it."""
        at = bucket_of(match_length)
        return self.hits[at] / (self.trials[at] + 1.0)

    def record(self, match_length: int, hit: bool) -> None:
        """One judged position."""
        at = bucket_of(match_length)
        self.trials[at] = self.trials[at] * DECAY + 1.0
        self.hits[at] = self.hits[at] * DECAY + hit
