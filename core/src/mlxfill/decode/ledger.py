"""What rounds and steps cost, by the clock, booked on the budget that the sequences share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlxfill.policy.clock import StepClock
from mlxfill.policy.plan import Outcome

if TYPE_CHECKING:
    from collections import abc

    from mlxfill.decode.sequence import Sequence
    from mlxfill.policy.cost import CostCurve


class Ledger:
    """Times the forwards of a loop.  ``asking``: steps that asking cost at the last plain step."""

    def __init__(self) -> None:
        """Nothing was timed yet."""
        self.clock = StepClock()
        self.asking = self.spent_s = 0.0
        self._even, self._uneven, self._steps = True, False, 0

    def rested(self) -> None:
        """Nobody knows how long the loop rested, or who shares it now."""
        self.clock, self._uneven = StepClock(), False

    def read(self, waited_s: float, sequences: abc.Sequence[Sequence], curve: CostCurve) -> None:
        """A step was read: free, unless something kept it from overlapping with the last one."""
        self.clock.read()
        self._even, self._uneven = not self._uneven, False
        self._steps += 1
        spent, gate = sum(each.session.spent() for each in sequences), sequences[0].gate
        gate.stepped()
        if not (gate.enabled and curve.timed):
            return
        if not self._even and self.clock.lap_s:
            self._charge(sequences, curve, [Outcome(1, 0, 0)], 1.0)
        elif self._even:
            self.asking = 0.0 if waited_s > spent else spent * 1e3 / curve.step_ms
            gate.budget.spend(self.asking)

    def learn(self, sequences: abc.Sequence[Sequence], curve: CostCurve, build_s: float) -> None:
        """The last steps were plain ones: what one takes, and how much of that the host does."""
        sequences[0].gate.budget.refill(self._steps)
        self._steps, step_s = 0, self.clock.step_s
        if step_s and self._even and not curve.fixed:
            curve.observe(1, step_s * 1e3)
            curve.stall = min(build_s / step_s, 1.0)

    def interrupted(self) -> None:
        """No step is in flight: the next one overlaps with nothing."""
        self._uneven = True

    def appended(self) -> None:
        """Ids were forwarded on which nobody bet: their time is no one's loss."""
        self.clock.read()
        self._uneven = True

    def verified(
        self,
        sequences: abc.Sequence[Sequence],
        curve: CostCurve,
        outcomes: abc.Sequence[Outcome],
        bound: float,
        drafting: float,
    ) -> float:
        """A window with drafts was read: book the time since the last token; the steps that it won.

        ``bound``: steps that it might have cost; ``drafting``: of its drafts, where no clock tells.
        """
        self.appended()
        for each in sequences:
            each.session.spent()  # is in the time of the round
        accepted = sum(outcome.accepted for outcome in outcomes) / len(outcomes)
        sequences[0].gate.budget.refill(1 + accepted)
        return self._charge(sequences, curve, outcomes, bound, drafting, 1 + accepted)

    def _charge(  # noqa: PLR0913, PLR0917
        self,
        sequences: abc.Sequence[Sequence],
        curve: CostCurve,
        outcomes: abc.Sequence[Outcome],
        bound: float,
        drafting: float = 0.0,
        plain_steps: float = 1.0,
    ) -> float:
        """Book the time since the last token, but for what telling drafters took."""
        # A consumer works while a step is in flight, and not beside a window; but it may be away.
        absent_s = max(self.clock.away_s - plain_steps * curve.step_ms / 1e3, 0.0)
        told_s = sum(each.told_s() for each in sequences)
        self.spent_s = max(self.clock.lap_s - told_s - absent_s, 0.0)
        return sequences[0].gate.charge(
            outcomes, curve, drafting=drafting, seconds=self.spent_s, bound=bound
        )
