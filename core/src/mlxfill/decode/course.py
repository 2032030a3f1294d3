"""The course of one reply, however its forwards are made: what entered, what was offered, the end.

A ``DecodeLoop`` forwards one request alone, a row loop several together; both hold a course
for each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mlx.core as mx
from attrs import define

from mlxfill.policy.clock import StepClock
from mlxfill.policy.plan import Candidate, Gate, Outcome, Plan
from mlxfill.request.results import SAMPLED
from mlxfill.stats.counters import COST, END, JUDGED, Counters

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from mlxfill.forward.runner import TargetRunner, VerifyResult
    from mlxfill.proposals.drafting import Drafting
    from mlxfill.proposals.session import Offer, Session
    from mlxfill.request.results import FinishReason

CLEAR_EVERY = 256


@define
class Emitted:
    """One token that entered the session.  ``logprobs``: ``[V]``, lazy."""

    token: int
    origin: str
    logprobs: mx.array | None


@define
class Ending:
    """How a request ended.  ``eos`` is the id that ended it, never emitted."""

    reason: FinishReason
    eos: int | None = None
    logprobs: mx.array | None = None


class Course:
    """Session, drafter, gate and counters of one request."""

    def __init__(  # noqa: PLR0913 - all state of one request, made by the engine
        self,
        forwarder: TargetRunner,
        session: Session,
        gate: Gate,
        drafting: Drafting | None,
        *,
        want_logprobs: bool,
        append_chunk: int,
        cancelled: Callable[[], bool],
        paused: Callable[[], bool] = lambda: False,
    ) -> None:
        """``append_chunk``: most ids of an asserted span per forward, 0: all."""
        self.forwarder, self.session, self.gate = forwarder, session, gate
        self.drafting, self.cancelled, self.paused = drafting, cancelled, paused
        self.counters = Counters()
        self.ending: Ending | None = None
        self.want_logprobs, self.append_chunk = want_logprobs, append_chunk
        self.waited_s = 0.0
        self.clock, self.even, self.uneven = StepClock(), True, False
        self.rewound = False  # the last window: taking back may be under way
        self._unasked, self._asking, self.spent_s = 0, 0.0, 0.0
        self._uncleared = 0
        self._burst_open = False

    @property
    def budget(self) -> int:
        """Tokens that may still be emitted."""
        return self.session.budget

    @property
    def asks(self) -> bool:
        """Whether there is anybody who may offer something."""
        return bool(self.session.seats) or self.drafting is not None

    @property
    def silence(self) -> int:
        """Plain tokens after which someone is to be asked again; nobody has an answer before."""
        drafter = 0 if self.drafting is None else self.drafting.silence
        if not self.session.seats:
            return drafter
        return self._unasked if self.drafting is None else min(self._unasked, drafter)

    # --- offers and plans ----------------------------------------------------------------

    def ask(self) -> Offer | None:
        """The first offer, if any."""
        offer = self.session.ask()
        if offer is None:
            self.session.drop_streaks()
        return offer

    def room(self) -> int:
        """Most ids that a window after the pending token may draft now."""
        room, limit = self.budget - 1, self.forwarder.room()
        return room if limit is None else min(room, limit - 1)

    def plan_offer(self, offer: Offer) -> Plan:
        """How much of an offer to verify now."""
        if self.gate.recalibrates:
            return Plan()
        return self.gate.plan_offer(self.candidate(offer), due=offer.seat.acceptance.retry.due)

    def candidate(self, offer: Offer, skipped: int = 0, known: int = 1) -> Candidate:
        """What an offer could put into a window, without its first ``skipped`` ids."""
        acceptance, matched = offer.seat.acceptance, offer.evidence + skipped
        limit = max(min(len(offer.ids), self.room()) - skipped, 0)
        return Candidate(
            known,
            limit,
            lambda at: acceptance.rate(matched + at),
            lower_rate=lambda at: acceptance.lower_rate(matched + at),
        )

    def wants_hot(self, offer: Offer | None) -> bool:
        """Whether to wait for the sample in flight before anything else is dispatched."""
        if self.starts_hot(offer):
            return True
        drafting = self.drafting
        if drafting is None or drafting.silence > 0:
            return False
        return drafting.plan(self.gate, self.room() - 1).depth > 0

    def starts_hot(self, offer: Offer | None) -> bool:
        """The same of the first of several steps, when no drafter is in question."""
        return (offer is not None and self.promising(offer)) or self.session.near()

    def promising(self, offer: Offer) -> bool:
        """Whether waiting for the sample in flight is worth the overlap that it costs."""
        gate, acceptance = self.gate, offer.seat.acceptance
        if not gate.enabled:
            return True
        if gate.recalibrates or gate.stall > gate.budget.steps:
            return False
        plan = gate.plan_offer(self.candidate(offer, skipped=1), due=acceptance.retry.due)
        return plan.explores or acceptance.rate(offer.evidence) * plan.gain > gate.stall

    def rest_sources(self, offer: Offer | None) -> Offer | None:
        """After an answer that leads to nothing: ask no more for a while where that costs too much.

        Where the host is slower than the device, asking takes time that the budget has to pay for;
        when it is used up they are asked as often as refills pay for.
        """
        budget, self._unasked = self.gate.budget, 0
        if budget.steps > 0 or not self._asking or not self.session.may_rest:
            return offer
        self._unasked = budget.refilled_after(self._asking)
        self.session.rest()
        return None

    # --- what it cost ---------------------------------------------------------------------

    def book_round(self, drafted: int, accepted: int, bound: float, drafting: float = 0.0) -> float:
        """A window was read: book the time since the last token; the steps that it won.

        ``bound``: steps that it might have cost; ``drafting``: of its drafts, where no clock tells.
        """
        self.clock.read()
        self.uneven = True
        self.session.spent()  # is in the time of the round
        self.gate.budget.refill(1 + accepted)
        return self._charge(Outcome(1, drafted, accepted), bound, drafting)

    def book_step(self) -> None:
        """A step was read: free, unless something kept it from overlapping with the last one."""
        self.even, self.uneven = not self.uneven, False
        spent, gate = self.session.spent(), self.gate
        gate.stepped()
        if not gate.timed:
            return
        if not self.even and self.clock.lap_s:
            self._charge(Outcome(1, 0, 0), 1.0)
        elif self.even:
            hidden = self.waited_s > spent
            self._asking = 0.0 if hidden else spent * 1e3 / gate.curve.step_ms
            gate.budget.spend(self._asking)

    def told_s(self) -> float:
        """Seconds that went into telling the drafter; what its fund did not cover is booked."""
        drafting = self.drafting
        if drafting is None:
            return 0.0
        told_s, drafting.told_s = drafting.told_s, 0.0
        self.gate.budget.spend(drafting.drafter.owes())
        return told_s

    def _charge(self, outcome: Outcome, bound: float, drafting: float = 0.0) -> float:
        """Book the time since the last token, but for what telling the drafter took."""
        clock, gate = self.clock, self.gate
        # A consumer works while a step is in flight, and not beside a window; but it may be away.
        plain_s = (1 + outcome.accepted) * gate.curve.step_ms / 1e3
        absent_s = max(clock.away_s - plain_s, 0.0)
        told_s = self.told_s()
        self.spent_s = max(clock.lap_s - told_s - absent_s, 0.0)
        return gate.charge(
            [outcome], gate.curve, drafting=drafting, seconds=self.spent_s, bound=bound
        )

    def handed(self, tokens: Iterable[Emitted]) -> Iterator[Emitted]:
        """The same tokens, while the clock knows that the consumer has the turn."""
        self.clock.ready()
        yield from tokens
        self.clock.start()

    # --- outcomes ------------------------------------------------------------------------

    def follow(self, offer: Offer, tokens: Sequence[int], *, left_out: bool = True) -> None:
        """The target chose ``tokens`` where ``offer`` stands: they tell for free what was right.

        ``left_out``: the gate decided for that; else the loop only waits for the token.
        """
        if left_out and self.gate.enabled:
            offer.fate = COST if offer.fate == END else offer.fate
            offer.seat.acceptance.retry.idle_tokens += len(tokens)
        else:
            offer.fate = JUDGED
        self.session.follow(tokens)

    def settle_window(self, offer: Offer, judged: VerifyResult) -> None:
        """The first ids of the open offer went through a window."""
        offer.fate = JUDGED
        self.session.follow(judged.sampled)

    def tally(self, origin: str, drafted: int, accepted: int) -> None:
        """Count a window of ``drafted`` ids."""
        self.counters.windows += 1
        self.counters.drafted_from[origin] += drafted
        self.counters.accepted_from[origin] += accepted

    def account_span(self, offer: Offer, *, wasted_sample: bool) -> None:
        """Count an asserted span and tell its source."""
        ids, origin, offer.fate = offer.ids, offer.proposal.origin, JUDGED
        self.session.settle(len(ids), len(ids))
        self.counters.fill_events += 1
        self.counters.truncations += len(ids) < len(offer.proposal.ids)
        self.counters.span_lengths.append(len(ids))
        self.counters.injected_from[origin] += len(ids)
        self.counters.wasted_samples += wasted_sample

    # --- the drafter's view of the rest ---------------------------------------------------

    def note_taps(self, taps: mx.array | None) -> None:
        """Taps ``[1, S, n*H]`` of a forward that was not the drafter's round."""
        if self.drafting is not None:
            self.drafting.note(taps)

    def rest_drafter(self, steps: int = 1) -> None:
        """So many plain steps, or another's round, went by."""
        drafting = self.drafting
        if drafting is not None and steps:
            drafting.rests(steps)
            if self.ending is None:  # else it need not know any more
                drafting.others_chose(self.session.tokens, self.forwarder.held)

    # --- emitting -------------------------------------------------------------------------

    def emit_judged(
        self, values: Sequence[int], judged: VerifyResult, origin: str
    ) -> list[Emitted]:
        """Accepted drafts, then the target's own choice after them."""
        n, rows = judged.accepted, judged.logprobs
        out: list[Emitted] = []
        if n:
            out += self.emit(values[:n], origin, [rows[i] for i in range(n)], more=True)
        if self.ending is None:
            out += self.emit(judged.sampled[n:], SAMPLED, [rows[n]], alone=not n)
        return out

    def emit(
        self,
        ids: Sequence[int],
        origin: str,
        rows: Sequence[mx.array | None],
        *,
        more: bool = False,
        alone: bool = True,
    ) -> list[Emitted]:
        """Enter tokens into the session; all are in it before a consumer sees the first."""
        if not self.enter(ids, rows[-1] if rows else None, more=more, alone=alone):
            return []
        return [
            Emitted(token, origin, rows[i] if i < len(rows) else None)
            for i, token in enumerate(ids)
        ]

    def enter(
        self,
        ids: Sequence[int],
        last: mx.array | None,
        *,
        more: bool = False,
        alone: bool = True,
    ) -> bool:
        """Enter tokens into the session and decide about the end; False for EOS, which stays out.

        ``last``: the log-probabilities that the last one was chosen from.  ``more``: the same
        forward emits further tokens.  ``alone``: it brought none before.  Only a sampled token can
        be EOS.
        """
        session = self.session
        if ids[-1] in session.rules.eos:
            self.counters.found_end += alone
            self.ending = Ending("stop", ids[-1], last)
            return False
        session.add(ids)
        self._count(len(ids), more=more)
        if session.complete():
            self.ending = Ending("stop")
        elif session.budget <= 0:
            self.ending = Ending("length")
        elif self.cancelled():
            self.ending = Ending("cancelled")
        return True

    def _count(self, count: int, *, more: bool) -> None:
        rounds = self.counters.rounds
        if self._burst_open:
            rounds[-1] += count
        else:
            rounds.append(count)
        self._burst_open = more
        self._uncleared += count
        if self._uncleared >= CLEAR_EVERY:
            self._uncleared = 0
            mx.clear_cache()

    def statistics(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The ``fill`` and ``spec`` counters."""
        spec = self.counters.spec(self.session.counts)
        if self.drafting is not None:
            own, kept_out = self.drafting.stats(), self.drafting.left_out
            spec.update(own)
            spec["offers"] += own["rounds"] + kept_out
            spec["judged"] += own["rounds"]
            spec["left_out"] += kept_out
        if self.forwarder.phases is not None:
            spec["phase_ms"] = {k: round(v, 3) for k, v in self.forwarder.phases.ms.items()}
        fill = self.counters.fill(self.session.counts, self.session.source_counts())
        return fill, spec
