"""Who fills the next window: a source's offer, a drafter, an asserted span, or nobody."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import evolve

from mlxfill.forward.runner import Window
from mlxfill.policy.plan import Candidate, Plan, best_plan
from mlxfill.proposals.drafting import draft_together

if TYPE_CHECKING:
    from collections import abc
    from collections.abc import Iterable

    import mlx.core as mx

    from mlxfill.decode.sequence import Sequence
    from mlxfill.policy.cost import CostCurve


def next_windows(sequences: abc.Sequence[Sequence], curve: CostCurve) -> list[Window]:
    """A window for each; asks sources and drafters."""
    for each in sequences:
        each.drafts = each.explores = False
        if each.first is None and not each.backlog:
            each.ask()
    if len(sequences) == 1:
        return [_alone(sequences[0])]
    candidates = [_candidate(each, curve) for each in sequences]
    gate = sequences[0].gate
    if gate.enabled:
        size = best_plan(candidates, curve, gate.budget.steps, curve.stall).size
    else:
        size = max(each.known + each.limit for each in candidates)
    depths = [_depth(each, plan, size) for each, plan in zip(sequences, candidates, strict=True)]
    drafts = _drafts(zip(sequences, depths, strict=True))
    return [
        _window(each, depth, size, drafts.get(each, ()))
        for each, depth in zip(sequences, depths, strict=True)
    ]


def _alone(sequence: Sequence) -> Window:
    """The window of one that shares its forward with nobody: it need not fit others'."""
    if sequence.forwarder.phases is not None:
        sequence.forwarder.phases.begin()
    if sequence.backlog:
        return sequence.asserted_window(0)
    offer, drafting, known = sequence.offer, sequence.drafting, sequence.known
    plan = sequence.plan_offer(offer) if offer is not None else Plan()
    if offer is not None and plan.depth:
        sequence.explores = plan.explores
        return Window(known, offer.ids[: plan.depth])
    if drafting is None or sequence.first is not None:
        return Window(known)
    depth = drafting.plan(sequence.gate, sequence.room()).depth
    sequence.drafts = depth > 0
    drafts = _drafts([(sequence, depth)]).get(sequence, ())
    sequence.drafts = len(drafts) > 0
    if sequence.forwarder.phases is not None:
        sequence.forwarder.phases.end("draft", drafts)
    return Window(known, drafts)


def _candidate(sequence: Sequence, curve: CostCurve) -> Candidate:
    """What a sequence could put into a window of several, and who would fill it."""
    known = len(sequence.known)
    if sequence.first is not None or sequence.backlog:
        return Candidate(known)
    offer, drafting, room = sequence.offer, sequence.drafting, sequence.room()
    may_draft = drafting is not None and drafting.limit(room) > 0
    if offer is not None and (not may_draft or sequence.plan_offer(offer).depth):
        return sequence.candidate(offer, known=known)
    if drafting is None or not may_draft:
        return Candidate(known)
    sequence.drafts = True
    candidate = drafting.candidate(sequence.gate.curve, room)
    return evolve(candidate, known=known, draft_cost=candidate.draft_cost / curve.base, proven=0)


def _depth(sequence: Sequence, candidate: Candidate, size: int) -> int:
    """How many ids are to be drafted for a window of so many, whether or not that pays for all."""
    depth, drafting = min(size - 1, candidate.limit), sequence.drafting
    if sequence.backlog or not sequence.drafts or drafting is None:
        return depth
    depth = depth or drafting.explored(sequence.gate, sequence.room())
    sequence.drafts = depth > 0
    drafting.left_out += sequence.gate.enabled and not depth
    return depth


def _drafts(
    depths: Iterable[tuple[Sequence, int]],
) -> dict[Sequence, abc.Sequence[int] | mx.array]:
    """What the drafters of those who let them draft say, each of a kind asked once for all."""
    wanted = {
        each.drafting: (each, depth)
        for each, depth in depths
        if each.drafts and each.drafting is not None
    }
    if not wanted:
        return {}
    answers = draft_together(
        [
            (drafting, depth, each.session.tokens, each.forwarder.held)
            for drafting, (each, depth) in wanted.items()
        ]
    )
    return {wanted[drafting][0]: drafts for drafting, drafts in answers.items()}


def _window(
    sequence: Sequence, depth: int, size: int, drafts: abc.Sequence[int] | mx.array
) -> Window:
    if sequence.backlog:
        return sequence.asserted_window(size)
    if sequence.drafts:
        sequence.drafts = len(drafts) > 0
        return Window(sequence.known, drafts)
    offer = sequence.offer
    return Window(sequence.known, offer.ids[:depth] if offer else ())
