"""The drafter of one request: when it drafts, how deep, and what came of it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from attrs import evolve

from mlxfill.contracts import Fault
from mlxfill.policy.constants import FIRST_RETRY, LAST_RETRY
from mlxfill.policy.plan import Candidate, Gate, Plan
from mlxfill.proposals.catching_up import Informed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import mlx.core as mx

    from mlxfill.checkpoint.content import StoredDrafting
    from mlxfill.contracts import DraftRows, DraftSampling
    from mlxfill.model.reading import Stream
    from mlxfill.policy.cost import CostCurve
    from mlxfill.policy.drafter import Drafter
    from mlxfill.proposals.group import DraftGroup, Member

_TALLY = ("drafted_by_position", "accepted_by_position", "acceptance_lengths")


class Drafting(Informed):
    """The rounds of one row of a drafter."""

    def __init__(  # noqa: PLR0913
        self,
        drafter: Drafter,
        rows: DraftRows,
        sampling: DraftSampling,
        *,
        cap: int,
        vocab_size: int,
        stream: Stream,
        on_fault: Callable[[Fault], None],
    ) -> None:
        """``cap``: most ids a round; ``stream``: where the target computes, so where drafts do."""
        super().__init__(drafter, rows, sampling, vocab_size, stream, on_fault)
        drafter.open()
        self.cap, self.origin = cap, drafter.kind.origin
        self.drafted_by_position = [0] * cap
        self.accepted_by_position = [0] * cap
        self.acceptance_lengths: list[int] = []
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

    def drafted(self, drafts: list[int] | mx.array) -> list[int] | mx.array:
        """What it answered, host ids or ``[d]`` on the device; nothing: it is asked less often."""
        if len(drafts):
            self._pause = 0
        elif self.alive:  # so that plain steps can overlap
            self._pause = self._idle = min(self._pause + 1, FIRST_RETRY)
        return drafts

    def commit(
        self, drafted: int, accepted: int, entered: list[int], aux_states: mx.array | None
    ) -> None:
        """``entered`` follows the old pending token, the new one included.

        The group tells the drafter when all have been told.
        """
        for i in range(min(accepted + 1, drafted)):
            self.drafter.acceptance.record(i, i < accepted)
        for i in range(min(drafted, self.cap)):
            self.drafted_by_position[i] += 1
            self.accepted_by_position[i] += i < accepted
        self.acceptance_lengths.append(accepted)
        warning = self.drafter.first_draft(accepted > 0, self.vocab_size)
        if warning:
            self._on_fault(Fault(self.drafter.plugin, "draft", warning, notice=True))
        self.group.entered(self, entered, aux_states if self.aux_layers else None)
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


def draft_together(
    wanted: Sequence[tuple[Drafting, int, Sequence[int], int]],
) -> dict[Drafting, list[int] | mx.array]:
    """One draft for all: of each its depth, its tokens, and how many the target holds.

    Each is told first what it has not heard of; who drafted alone until now joins the others.
    """
    for drafting, _, tokens, held in wanted:
        if len(drafting.group.members) == 1:
            drafting.catch_up(tokens, held)
    largest = max((drafting.group for drafting, *_ in wanted), key=lambda each: len(each.members))
    for drafting, *_ in wanted:
        if drafting.alive and drafting.group is not largest and len(drafting.group.members) == 1:
            largest.join(drafting)
    tell_together(largest, {drafting: (tokens, held) for drafting, _, tokens, held in wanted})
    able = [each for each in wanted if each[0].alive and each[0].group is largest]
    if not able:
        return {}
    for drafting, *_ in able:
        drafting.drafter.drafts()
    asked = [(drafting, tokens[-1], len(tokens)) for drafting, _, tokens, _ in able]
    answers = largest.draft(asked, max(depth for _, depth, *_ in able))
    out = {}
    for drafting, depth, *_ in able:
        drafts = answers.get(drafting, [])
        out[drafting] = drafting.drafted(drafts if len(drafts) <= depth else drafts[:depth])
    return out


def tell_together(group: DraftGroup, members: dict[Drafting, tuple[Sequence[int], int]]) -> None:
    """Tell members of a group, in one call, of the tokens that others chose."""
    while True:
        fresh: dict[Member, tuple[Sequence[int], mx.array | None]] = {
            each: told
            for each, (tokens, held) in members.items()
            if each.group is group and (told := each.untold(tokens, held)) is not None
        }
        if not fresh:
            return
        started = time.perf_counter()
        group.consume(fresh)
        seconds = time.perf_counter() - started
        for each in members:
            if each in fresh:
                each.was_told(len(fresh[each][0]), seconds / len(fresh))
