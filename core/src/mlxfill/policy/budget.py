"""What speculation may lose, and when what did not pay is tried again.

The unit is the plain step.  Whatever speculation does is charged with the time that it took:
drafting, windows, taking back, telling a drafter what it missed, asking sources, waiting for a
token in flight, tries.  Estimates choose between bets; they do not say what was lost.
"""

from __future__ import annotations

from attrs import define

from mlxfill.policy.constants import (
    CAUTION,
    FIRST_RETRY,
    INITIAL,
    LAST_RETRY,
    REFILL,
)

MOST_SAVED, MOST_OWED = 2 * INITIAL, 4 * INITIAL


@define
class SpeculationBudget:
    """Steps that may be lost: an initial sum, a refill by each plain step, and what was won.

    No bet is made that could lose more than is there, and what was lost is taken out as the clock
    says.  So a request cannot become slower by more than that, whatever the estimates are.
    """

    steps: float = INITIAL

    def renew(self) -> None:
        """A request begins: at least the initial sum, at most what may be saved."""
        self.steps = min(max(self.steps, INITIAL), MOST_SAVED)

    def refill(self, plain_steps: float = 1.0) -> None:
        """So many plain steps went by."""
        if self.steps < MOST_SAVED:
            self.steps = min(self.steps + plain_steps * REFILL, MOST_SAVED)

    def spend(self, steps: float) -> None:
        """Steps that were lost, or won where ``steps`` is negative."""
        self.steps = max(self.steps - (CAUTION * steps if steps > 0 else steps), -MOST_OWED)

    def refilled_after(self, steps: float) -> int:
        """Plain steps until ``steps`` could be lost."""
        return max(round((steps - self.steps) / REFILL), 0)


@define
class RetrySchedule:
    """When something that did not pay is tried again.

    ``idle_tokens``: plain tokens since it was used last; after ``retry_after`` of them it is tried.
    """

    idle_tokens: int = 0
    retry_after: int = FIRST_RETRY

    @property
    def due(self) -> bool:
        """Whether it has been idle long enough."""
        return self.idle_tokens >= self.retry_after

    @property
    def stale(self) -> bool:
        """Whether it has been idle so long that nothing is known of it any more."""
        return self.idle_tokens >= LAST_RETRY

    @property
    def recheck_after(self) -> int:
        """Plain tokens until it is worth planning with it again."""
        return 1 + self.idle_tokens // FIRST_RETRY

    def begin(self) -> None:
        """It is used now; the next try comes later, unless this one pays."""
        if self.due:
            self.retry_after = min(max(2 * self.retry_after, FIRST_RETRY), LAST_RETRY)
        self.idle_tokens = 0

    def paid(self, retry_after: int = FIRST_RETRY) -> None:
        """It was worth it."""
        self.retry_after = retry_after
