"""What speculation may lose, and when what did not pay is tried again.

The unit is the plain step.  Whatever speculation does is charged with the time that it took:
drafting, windows, taking back, telling a drafter what it missed, asking sources, waiting for a
token in flight, tries.  Estimates choose between bets; they do not say what was lost.
"""

from __future__ import annotations

from attrs import define

from mlxfill.policy.constants import (
    CAUTION,
    FIRST_REST,
    INTEREST,
    LAST_REST,
    MOST_OWED,
    MOST_SAVED,
    STAKE,
)


@define
class SpeculationBudget:
    """Steps that may be lost: a stake, interest on plain steps, and what was won.

    No bet is made that could lose more than is there, and what was lost is taken out as the clock
    says.  So a request cannot become slower by more than that, whatever the estimates are.
    """

    steps: float = STAKE

    def renew(self) -> None:
        """A request begins: at least the stake, at most what may be saved."""
        self.steps = min(max(self.steps, STAKE), MOST_SAVED)

    def earn(self, steps: float = 1.0) -> None:
        """So many plain steps went by."""
        if self.steps < MOST_SAVED:
            self.steps = min(self.steps + steps * INTEREST, MOST_SAVED)

    def book(self, won: float) -> None:
        """Steps that were won, or lost where ``won`` is negative."""
        self.steps = max(self.steps + (won if won > 0 else CAUTION * won), -MOST_OWED)


@define
class RetrySchedule:
    """When something that did not pay is tried again.

    ``idle_tokens``: plain tokens since it was used last; after ``retry_after`` of them it is tried.
    """

    idle_tokens: int = 0
    retry_after: int = FIRST_REST

    @property
    def due(self) -> bool:
        """Whether it has rested long enough."""
        return self.idle_tokens >= self.retry_after

    @property
    def late(self) -> bool:
        """Whether it has rested so long that nothing is known of it any more."""
        return self.idle_tokens >= LAST_REST

    def begin(self) -> None:
        """It is used now; the next try comes later, unless this one pays."""
        if self.due:
            self.retry_after = min(2 * self.retry_after, LAST_REST)
        self.idle_tokens = 0

    def paid(self) -> None:
        """It was worth it."""
        self.retry_after = FIRST_REST
