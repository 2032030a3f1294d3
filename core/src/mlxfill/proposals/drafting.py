"""The drafter of one request: when it drafts, how deep, and what came of it."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

import mlx.core as mx

from mlxfill.contracts import Fault
from mlxfill.policy.constants import LAST_REST
from mlxfill.policy.plan import NOTHING, Drafts, Gate, Plan
from mlxfill.proposals.catching_up import Informed

if TYPE_CHECKING:
    from collections.abc import Callable

    from mlxfill.checkpoint.content import StoredDrafting
    from mlxfill.contracts import DraftRows
    from mlxfill.model.reading import Stream
    from mlxfill.proposals.drafter import Drafter

LAST_PAUSE = 7
"""Most tokens between two calls of a drafter that answers with no drafts."""
BETWEEN_PLANS, SHARE_OF_REST = 4, 8
"""Plain tokens between two questions whether to draft again: so many, and then this part of all
that it has rested, since an answer takes longer than all else that a plain token costs."""
LOOK = 3
"""Plain steps of a look at what they cost: the first one's time says nothing."""
WORTH_A_TRY = 1.15
"""What perfect drafts must promise for a drafter at rest to be tried before its longest rest."""
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
        self._looking = 0
        self._pause = self._idle = 0
        self.left_out = 0

    # --- whether to draft -------------------------------------------------------------

    def plan(self, gate: Gate, room: int) -> Plan:
        """How deep to draft now; a resting drafter is tried again from time to time."""
        limit = self.limit(room)
        if not limit or self._looks(gate):
            return NOTHING
        self._know(gate)
        drafter = self.drafter
        plan = gate.plan(drafter.acceptance, 0, limit, drafts=self.known(gate, limit))
        if plan.tries:
            drafter.tried()
        else:
            drafter.promise = plan.ratio
        if plan.depth and (plan.tries or drafter.pays(self._untold, room + 1)):
            return plan
        self._idle = max(BETWEEN_PLANS, drafter.acceptance.retry.idle_tokens // SHARE_OF_REST)
        self.left_out += gate.enabled
        return NOTHING

    def tried(self, gate: Gate, room: int) -> int:
        """How deep to draft although it does not seem to pay: a try, when one is due."""
        limit = self.limit(room)
        if not limit:
            return 0
        plan = gate.plan(self.drafter.acceptance, 0, limit, drafts=self.known(gate, limit))
        if not plan.tries:
            return 0
        self.drafter.tried()
        return plan.depth

    def known(self, gate: Gate, limit: int) -> Drafts:
        """What the gate has to know of it for a round of at most ``limit`` drafts.

        One that does not pay is tried where perfect drafts would, or where nobody knows what its
        rounds cost: a curve that was measured on a busy machine shall not keep it out for good.
        """
        drafter = self.drafter
        untimed = not drafter.costed and not gate.curve.fixed and drafter.trained
        hopeful = untimed or drafter.acceptance.retry.late
        telling = self._untold * drafter.telling
        return Drafts(
            lambda depth: self.cost_now(gate, depth),
            drafter.proven,
            max(telling - drafter.fund, 0.0),
            telling,
            hopeful or self._promise(gate, limit) > WORTH_A_TRY,
        )

    def _know(self, gate: Gate) -> None:
        """Times are told in steps."""
        self.drafter.step_ms = 0.0 if gate.curve.fixed else gate.curve.quiet_step_ms

    def telling(self, gate: Gate, room: int) -> float:
        """Plain steps, for each token to come, that it costs to tell it what it does not know."""
        self._know(gate)
        return self.drafter.share(self._untold, room + 1)

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
        self._idle -= steps

    # --- a round ---------------------------------------------------------------------

    def draft(self, pending: int, depth: int, position: int) -> list[int] | mx.array:
        """Up to ``depth`` ids after ``pending``: host ids, or ``[d]`` on the device."""
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
            self.drafter.acceptance.record(i, i < accepted)
        for i in range(min(drafted, self.cap)):
            self.drafted_by_position[i] += 1
            self.accepted_by_position[i] += i < accepted
        self.acceptance_lengths.append(accepted)
        warning = self.drafter.first_draft(accepted > 0, self._vocab_size)
        if warning:
            self._on_fault(Fault(self.drafter.plugin, "draft", warning, notice=True))
        self._guard(
            "commit", lambda: self.rows.commit([entered], taps if self.tap_layers else None)
        )
        self.processed += len(entered)
        self._noted = self.processed

    def timed(self, drafted: int, seconds: float) -> None:
        """A round took so long, from the last token that was read on; 0: nobody knows."""
        self.drafter.rounds += 1
        if drafted and seconds:
            self.drafter.timed(drafted, seconds * 1e3)

    # --- counters --------------------------------------------------------------------

    def tally(self) -> dict[str, Any]:
        """Counters, to be stored."""
        return {"left_out": self.left_out, **{name: list(getattr(self, name)) for name in _TALLY}}

    def recall(self, tally: StoredDrafting) -> None:
        """Go on counting from a stored tally; by position, if there are as many."""
        self.left_out = tally.left_out
        if len(tally.drafted_by_position) == len(tally.accepted_by_position) == self.cap:
            for name in _TALLY:
                setattr(self, name, list(getattr(tally, name)))

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
