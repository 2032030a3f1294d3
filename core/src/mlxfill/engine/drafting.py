"""The drafter of one request: when it drafts, how deep, and what came of it."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

import mlx.core as mx

from mlxfill.contracts import Fault
from mlxfill.engine.counters import StepClock
from mlxfill.engine.drafter import LAST_REST
from mlxfill.engine.gate import NOTHING, Gate, Plan
from mlxfill.engine.telling import Informed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mlxfill.contracts import DraftRows
    from mlxfill.engine.drafter import Drafter
    from mlxfill.model.reading import Stream

LAST_PAUSE = 7
"""Most tokens between two calls of a drafter that answers with no drafts."""
BETWEEN_PLANS, SHARE_OF_REST = 4, 8
"""Plain tokens between two questions whether to draft again: so many, and then this part of all
that it has rested, since an answer takes longer than all else that a plain token costs."""
LOOK = 4
"""Plain steps of a look at what they cost: the first one's time says nothing."""
WORTH_A_TRY = 1.15
"""What perfect drafts must promise for a drafter at rest to be tried before its longest rest."""
HOPEFUL = 1.3
"""Tokens that a round must promise for its cost to be found out."""
_TALLY = ("drafted_by_position", "accepted_by_position", "acceptance_lengths")


class Drafting(Informed):
    """The rounds of one row of a drafter."""

    def __init__(  # noqa: PLR0913
        self,
        drafter: Drafter,
        rows: DraftRows,
        *,
        cap: int,
        vocab_size: int,
        stream: Stream,
        on_fault: Callable[[Fault], None],
    ) -> None:
        """``cap``: most ids a round; ``stream``: where the target computes, so where drafts do."""
        super().__init__(drafter, rows, stream, on_fault)
        drafter.open()
        self.cap, self.origin = cap, drafter.kind.origin
        self.drafted_by_position = [0] * cap
        self.accepted_by_position = [0] * cap
        self.acceptance_lengths: list[int] = []
        self._vocab_size = vocab_size
        self._clock = StepClock()
        self._looking = 0
        self._again = False
        self._pause = self._idle = 0
        self.left_out = 0

    # --- whether to draft -------------------------------------------------------------

    def plan(self, gate: Gate, room: int) -> Plan:
        """How deep to draft now; a resting drafter is tried again from time to time."""
        limit = self.limit(room)
        if not limit or self._looks(gate):
            return NOTHING
        if self._finds_out(gate, limit):
            return Plan(limit, 0.0)
        plan = gate.plan(
            self.drafter.survival,
            0,
            limit,
            draft_cost=lambda depth: self.cost_now(gate, depth),
            credit=self.drafter.credit,
        )
        self._know(gate)
        drafter, curve = self.drafter, gate.curve
        drafter.promise = plan.ratio
        if plan.depth and drafter.pays(self._untold, room + 1):
            return plan
        tried = self.tried(gate, room)
        self._again = tried > 0 and not curve.fixed and drafter.trained
        if not tried:
            self._idle = max(BETWEEN_PLANS, drafter.rested // SHARE_OF_REST)
            self.left_out += gate.enabled
        return Plan(tried, 0.0)

    def _know(self, gate: Gate) -> None:
        """Times are told in steps."""
        self.drafter.step_ms = 0.0 if gate.curve.fixed else gate.curve.quiet_step_ms

    def telling(self, gate: Gate, room: int) -> float:
        """Plain steps, for each token to come, that it costs to tell it what it does not know."""
        self._know(gate)
        return self.drafter.share(self._untold, room + 1)

    def _finds_out(self, gate: Gate, limit: int) -> bool:
        """Whether to draft so that the cost of rounds becomes known.

        A curve that was measured on a busy machine would keep a good drafter out for good: its
        first rounds are made on credit.  A try that was right is followed by a second round: the
        first one of a row is not timed.
        """
        again, self._again = self._again, False
        drafter, curve = self.drafter, gate.curve
        if again or not drafter.trained or not gate.enabled or curve.fixed or drafter.costed:
            return again
        left = gate.purse.steps + drafter.credit - self._untold * drafter.telling
        return left > 0 and drafter.survival.expected(limit) >= HOPEFUL

    def _looks(self, gate: Gate) -> bool:
        """Whether to leave this round to a plain step, so that the clock knows what those cost.

        Whether rounds pay is told in steps, and a machine may become faster or slower.
        """
        if not self.drafter.provider.supports_external_tokens:
            return False  # it could not be told of those steps
        if not self._looking and gate.enabled and not gate.curve.fixed and self.drafter.looks():
            self._looking = LOOK
        if not self._looking:
            return False
        self._looking -= 1
        return True

    @property
    def silence(self) -> int:
        """Plain tokens after which it is to be asked again; it has no answer before."""
        return self._idle if self.alive else LAST_REST

    def limit(self, room: int) -> int:
        """Most ids that it may draft now, whether it pays or not."""
        return max(min(self.cap, room), 0) if self.silence <= 0 else 0

    def tried(self, gate: Gate, room: int) -> int:
        """How deep to draft although it does not seem to pay: a resting one's try, when due."""
        limit = self.limit(room)
        if not limit or not self.drafter.may_try(self._untold):
            return 0
        late = self.drafter.rested >= LAST_REST
        return limit if late or self._promise(gate, limit) > WORTH_A_TRY else 0

    def _promise(self, gate: Gate, limit: int) -> float:
        """Tokens per cost of perfect drafts, in the best depth."""
        costs = [gate.curve.cost(1 + d) + d * self.cost_now(gate, d) for d in range(1, limit + 1)]
        return max((1 + d) / cost for d, cost in enumerate(costs, 1))

    @property
    def draft_cost(self) -> float:
        """Cost of one draft in plain steps, as measured at first."""
        return self.drafter.cost or 0.0

    def cost_now(self, gate: Gate, depth: int) -> float:
        """Cost of each of ``depth`` drafts in plain steps, as rounds show it."""
        return self.drafter.draft_cost(depth, gate.curve)

    def rests(self, steps: int) -> None:
        """So many plain steps, or another's round, went by."""
        self.drafter.rests(steps)
        self._clock = StepClock()
        self._idle -= steps

    # --- a round ---------------------------------------------------------------------

    def draft(self, pending: int, depth: int, position: int) -> list[int] | mx.array:
        """Up to ``depth`` ids after ``pending``: host ids, or ``[d]`` on the device."""
        self._clock.start()
        self._in_use = True
        self.drafter.drafts()
        drafts: list[int] | mx.array | None = self._guard(
            "draft", lambda: self._drafts(pending, depth, position)
        )
        if drafts is None:
            return []
        if len(drafts):
            self._pause = 0
        else:  # nothing to say: ask less often, so that plain steps can overlap
            self._pause = self._idle = min(2 * self._pause + 1, LAST_PAUSE)
        return drafts

    def _drafts(self, pending: int, depth: int, position: int) -> list[int] | mx.array:
        """What the rows answer, or an error that says what is wrong with it."""
        answer: Any = self.rows.draft([pending], depth, [position])
        if isinstance(answer, mx.array):
            if answer.ndim != 2 or answer.shape[0] != 1 or answer.shape[1] > depth:  # noqa: PLR2004
                raise ValueError(f"answered an array of shape {answer.shape}")
            if not mx.issubdtype(answer.dtype, mx.integer):
                raise TypeError(f"answered an array of {answer.dtype}")
            return mx.clip(answer[0], 0, self._vocab_size - 1)
        (only,) = answer
        ids = list(islice(only, depth))
        if not all(type(t) is int and 0 <= t < self._vocab_size for t in ids):
            raise ValueError(f"ids {ids!r} are not all in the vocabulary")
        return ids

    def commit(
        self, drafted: int, accepted: int, entered: list[int], taps: mx.array | None
    ) -> None:
        """End of a round: ``entered`` follows the old pending token, the new one included."""
        for i in range(min(accepted + 1, drafted)):
            self.drafter.survival.learn(i, i < accepted)
        for i in range(min(drafted, self.cap)):
            self.drafted_by_position[i] += 1
            self.accepted_by_position[i] += i < accepted
        self.acceptance_lengths.append(accepted)
        self.drafter.settle(drafted, accepted)
        self._again = self._again and accepted > 0
        warning = self.drafter.first_draft(accepted > 0, self._vocab_size)
        if warning:
            self._on_fault(Fault(self.drafter.plugin, "draft", warning, notice=True))
        self._guard(
            "commit", lambda: self.rows.commit([entered], taps if self.tap_layers else None)
        )
        self.processed += len(entered)
        self._noted = self.processed

    def timed(self, gate: Gate, drafted: int) -> None:
        """A round ended: learn what drafting costs from its wall time, read to read.

        The first round after something else says nothing: it also brings the drafter up to date.
        """
        clock, curve = self._clock, gate.curve
        clock.read()
        clock.ready()
        self.drafter.rounds += 1
        if not drafted or not clock.step_s or curve.fixed:
            return
        self.drafter.timed(drafted, clock.step_s * 1e3)

    # --- counters --------------------------------------------------------------------

    def tally(self) -> dict[str, Any]:
        """Counters, to be stored."""
        return {"left_out": self.left_out, **{name: list(getattr(self, name)) for name in _TALLY}}

    def recall(self, tally: Mapping[str, Any]) -> None:
        """Go on counting from a stored tally; by position, if there are as many."""
        self.left_out = tally.get("left_out", 0)
        if len(tally["drafted_by_position"]) == self.cap:
            for name in _TALLY:
                setattr(self, name, list(tally[name]))

    def stats(self) -> dict[str, Any]:
        """Counters by position."""
        return {
            "drafter": self.drafter.plugin,
            "drafted_by_position": self.drafted_by_position,
            "accepted_by_position": self.accepted_by_position,
            "acceptance_lengths": self.acceptance_lengths,
            "rounds": len(self.acceptance_lengths),
            "forwards_saved": sum(self.acceptance_lengths),
            "draft_cost": round(self.draft_cost, 4),
        }
