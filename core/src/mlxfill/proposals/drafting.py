"""The drafter of one request: when it drafts, how deep, and what came of it."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

import mlx.core as mx
from attrs import evolve

from mlxfill.contracts import Fault
from mlxfill.policy.constants import FIRST_RETRY, LAST_RETRY
from mlxfill.policy.plan import Candidate, Gate, Plan
from mlxfill.proposals.catching_up import Informed

if TYPE_CHECKING:
    from collections.abc import Callable

    from mlxfill.checkpoint.content import StoredDrafting
    from mlxfill.contracts import DraftRows
    from mlxfill.model.reading import Stream
    from mlxfill.policy.cost import CostCurve
    from mlxfill.policy.drafter import Drafter

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
        self._pause = self._idle = 0
        self.left_out = 0

    # --- whether to draft -------------------------------------------------------------

    def plan(self, gate: Gate, room: int) -> Plan:
        """How deep to draft now; an idle drafter is tried again from time to time."""
        limit, drafter = self.limit(room), self.drafter
        if not limit or (drafter.provider.supports_external_tokens and gate.recalibrates):
            return Plan()
        plan = drafter.plan(gate, limit, self._untold, room + 1)
        if not plan.depth:
            self._idle = drafter.retry.recheck_after
            self.left_out += gate.enabled
        return plan

    def explored(self, gate: Gate, room: int) -> int:
        """How deep to draft although it does not seem to pay: a try, when one is due."""
        limit = self.limit(room)
        return self.drafter.exploration(gate, limit, self._untold).depth if limit else 0

    def candidate(self, curve: CostCurve, room: int) -> Candidate:
        """What it could put into a window of several rows, by the curve of one."""
        candidate = self.drafter.candidate(self.limit(room), curve, self._untold)
        share = self.drafter.catch_up_share(self._untold, room + 1)
        return evolve(candidate, draft_cost=(self.drafter.cost or 0.0) + share)

    @property
    def silence(self) -> int:
        """Plain tokens after which it is to be asked again; it has no answer before."""
        return self._idle if self.alive else LAST_RETRY

    def limit(self, room: int) -> int:
        """Most ids that it may draft now, whether it pays or not."""
        return max(min(self.cap, room), 0) if self.silence <= 0 else 0

    def rests(self, steps: int) -> None:
        """So many plain steps, or another's round, went by."""
        self.drafter.retry.idle_tokens += steps
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
            self._pause = self._idle = min(self._pause + 1, FIRST_RETRY)
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
            "draft_cost": round(self.drafter.cost or 0.0, 4),
        }
