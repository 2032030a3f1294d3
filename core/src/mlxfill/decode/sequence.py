"""One request while it is decoded: what entered, what was offered, what was counted, the end.

A ``DecodeLoop`` forwards one sequence or several; whether others share its forwards makes no
difference to what is said here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mlx.core as mx
from attrs import define

from mlxfill.contracts import Policy
from mlxfill.forward.runner import Window
from mlxfill.policy.plan import Candidate, Gate, Plan
from mlxfill.request.results import SAMPLED
from mlxfill.stats.counters import COST, END, JUDGED, Counters

if TYPE_CHECKING:
    from collections import abc
    from collections.abc import Callable

    from mlxfill.forward.runner import TargetRunner, VerifyResult
    from mlxfill.policy.cost import CostCurve
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


class Sequence:
    """One request in the loop: session, drafter, gate, counters, and where it stands.

    ``offer``: the open one, if any; ``left_out``: the gate decided against it.  ``drafts``: its
    drafter fills the next window.  ``backlog``: asserted ids from ``asserted`` that are known and
    not yet forwarded; ``first_row``: the log-probabilities that the first of them replaces, where
    they are known already; ``skips``: the sample in flight is for a position that one of them took.
    ``first``: takes the sample after the prompt's last token, which has not been forwarded yet.
    ``passed``: plain tokens since somebody was asked.
    """

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
        self.offer: Offer | None = None
        self.left_out, self.explores, self.drafts, self.skips = True, False, False, False
        self.backlog: list[int] = []
        self.asserted = SAMPLED
        self.first_row: mx.array | None = None
        self.first: Callable[[int, mx.array], list[Emitted]] | None = None
        self.passed = 0
        self._silence = self._unasked = self._uncleared = 0
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
    def overlaps(self) -> bool:
        """Whether the next step may be dispatched before the token in flight is read.

        Whoever offers or processes tokens sees the first one before anything follows it.
        """
        if self.budget <= 1 or self.cancelled() or self.paused():
            return False
        return self.first is None or not (self.asks or self.forwarder.one_by_one)

    @property
    def known(self) -> list[int]:
        """Ids that no forward has taken in yet: the newest token, or what is asserted as well."""
        return [*self.session.tokens[self.forwarder.held :], *self.backlog]

    def heeds_cancel(self) -> bool:
        """Whether it is over, since nobody wants the rest."""
        if self.ending is None and self.cancelled():
            self.ending = Ending("cancelled")
        return self.ending is not None

    # --- plain steps ---------------------------------------------------------------------

    def begin_steps(self) -> bool:
        """Plain steps begin: whether the first is to be read before the next is dispatched."""
        waits = self.starts_hot(self.offer)
        self.left_out = True
        self._listen()
        return waits

    def _listen(self) -> None:
        """Nobody has an answer before so many plain tokens."""
        self.passed = 0
        drafter = 0 if self.drafting is None else self.drafting.silence
        if self.session.seats:
            drafter = self._unasked if self.drafting is None else min(self._unasked, drafter)
        self._silence = drafter

    @property
    def looks(self) -> bool:
        """Whether somebody may have an answer again."""
        return self.asks and self.passed > 0 and self.passed >= self._silence

    def look(self, asking: float) -> bool:
        """With a step in flight, ask everyone: whether its token is to be read before the next."""
        self.rest_drafter(self.passed)
        if self.ask():
            self.skips = True
            self.counters.wasted_samples += 1
            return True
        waits, self._unasked = self.wants_hot(self.offer), 0
        if not waits:
            self.rest_sources(asking)
        self.left_out = not waits
        self._listen()
        return waits

    def end_steps(self) -> None:
        """No step is in flight any more."""
        self.rest_drafter(self.passed)
        self.passed = 0

    def sampled(self, token: int, logprobs: mx.array) -> list[Emitted]:
        """The step in flight was read."""
        if self.skips:
            self.skips, self.first_row = False, logprobs
            return []
        if self.offer is not None:
            self.follow(self.offer, (token,), left_out=self.left_out)
        self.passed += 1
        if not self.enter((token,), logprobs):
            return []
        return [Emitted(token, SAMPLED, logprobs)]

    def dropped(self, logprobs: mx.array) -> None:
        """The step in flight is not worth reading: an asserted id took its position."""
        self.counters.in_flight -= 1
        self.skips, self.first_row = False, logprobs

    # --- offers and plans ----------------------------------------------------------------

    def ask(self) -> bool:
        """Ask for the first offer; whether it asserts, which fills the backlog."""
        self.offer = offer = self.session.ask()
        if offer is None:
            self.session.drop_streaks()
        elif offer.policy is Policy.ASSERT:
            self._account_span(offer)
            self.backlog, self.asserted = list(offer.ids), offer.proposal.origin
            self.offer = None
            return True
        return False

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

    def rest_sources(self, asking: float) -> None:
        """After an answer that leads to nothing: ask no more for a while where that costs too much.

        Where the host is slower than the device, asking takes time that the budget has to pay for;
        when it is used up they are asked as often as refills pay for.  ``asking``: what it cost.
        """
        if self.gate.budget.steps <= 0 and asking and self.session.may_rest:
            self._unasked = self.gate.budget.refilled_after(asking)
            self.session.rest()
            self.offer = None

    # --- what it cost --------------------------------------------------------------------

    @property
    def proven(self) -> int:
        """Most drafts of a round of its drafter whose time is known."""
        return 0 if self.drafting is None else self.drafting.drafter.proven

    def draft_cost(self, curve: CostCurve) -> float:
        """Of each draft of its drafter, in plain steps of all who share the forward."""
        if self.drafting is None:
            return 0.0
        drafter = self.drafting.drafter
        if curve is self.gate.curve:
            return drafter.draft_cost(curve, curve.stall)
        return (drafter.cost or 0.0) / curve.base

    def won(self, steps: float, drafted: int, spent_s: float, *, rewound: bool) -> None:
        """A window with its drafts won, or lost, so many steps.

        ``spent_s``: what it took, where nobody shared it; ``rewound``: a rewind was under way.
        """
        if self.drafts and self.drafting is not None:
            drafter = self.drafting.drafter
            drafter.won(steps)
            if spent_s:
                drafter.timed(drafted, spent_s * 1e3, rewound=rewound)
        elif self.offer is not None:
            retry = self.offer.seat.acceptance.retry
            if self.explores:
                retry.begin()
            if steps > 0:
                retry.paid()

    def told_s(self) -> float:
        """Seconds that went into telling the drafter; what its fund did not cover is booked."""
        drafting = self.drafting
        if drafting is None:
            return 0.0
        told_s, drafting.told_s = drafting.told_s, 0.0
        self.gate.budget.spend(drafting.drafter.owes())
        return told_s

    # --- outcomes ------------------------------------------------------------------------

    def follow(self, offer: Offer, tokens: abc.Sequence[int], *, left_out: bool = True) -> None:
        """The target chose ``tokens`` where ``offer`` stands: they tell for free what was right.

        ``left_out``: the gate decided for that; else the loop only waits for the token.
        """
        if left_out and self.gate.enabled:
            offer.fate = COST if offer.fate == END else offer.fate
            offer.seat.acceptance.retry.idle_tokens += len(tokens)
        else:
            offer.fate = JUDGED
        self.session.follow(tokens)

    def _account_span(self, offer: Offer) -> None:
        """Count an asserted span and tell its source."""
        ids, origin, offer.fate = offer.ids, offer.proposal.origin, JUDGED
        self.session.settle(len(ids), len(ids))
        self.counters.fill_events += 1
        self.counters.truncations += len(ids) < len(offer.proposal.ids)
        self.counters.span_lengths.append(len(ids))
        self.counters.injected_from[origin] += len(ids)

    def verified(self, window: Window, result: VerifyResult) -> list[Emitted]:
        """The target said its part to a window: tokens that entered."""
        aux_states, values = self.forwarder.last_aux_states, result.drafts
        if self.backlog:
            return self._appended(window, result)
        offer, self.offer = self.offer, None
        drafting, origin = self.drafting, SAMPLED
        if self.drafts and drafting is not None and values:
            origin = drafting.origin
            if offer is not None:
                self.follow(offer, result.sampled)
            if self.session.on_drafts is not None:
                self.session.on_drafts(drafting, values, result)
            drafting.commit(len(values), result.accepted, result.sampled, aux_states)
        else:
            self.note_aux_states(aux_states)
            if offer is not None and values:
                offer.fate, origin = JUDGED, offer.proposal.origin
                self.session.follow(result.sampled)
            elif offer is not None:
                self.follow(offer, result.sampled)
        self.counters.steps += not values
        if values:
            self.counters.windows += 1
            self.counters.drafted_from[origin] += len(values)
            self.counters.accepted_from[origin] += result.accepted
        out = self.emit_judged(values, result, origin)
        if not (self.drafts and values):
            self.rest_drafter()
        return out

    def asserted_window(self, size: int) -> Window:
        """The next part of the backlog, at most ``size`` ids of it and of what is known before.

        As anywhere, the caches end before the newest token: the last id of a span that ends the
        reply is not forwarded.
        """
        known = self.known
        last = len(known) - (len(self.backlog) >= self.budget)
        limits = (last, size, self.append_chunk, self.forwarder.room())
        part = known[: min(limit for limit in limits if limit)]
        want = self.want_logprobs or self.forwarder.shows_asserted
        return Window(part, (), want, more_known=len(part) < len(known))

    def _appended(self, window: Window, result: VerifyResult) -> list[Emitted]:
        """Asserted ids were forwarded; the last part of a span is followed by a sample."""
        self.note_aux_states(self.forwarder.last_aux_states)
        tokens, span = self.session.tokens, self.backlog
        before = self.forwarder.held - len(window.known)
        count = len(window.known) - (len(tokens) - before)
        rows: list[mx.array | None] = [*result.known_logprobs, *result.logprobs[:1]]
        if before == len(tokens):  # the first one's were computed before
            rows = [self.first_row, *rows]
        count += count == len(span) - 1 and len(span) >= self.budget
        ids, self.backlog = span[:count], span[count:]
        self.first_row = rows.pop() if len(rows) > count else None
        out: list[Emitted] = []
        if ids:
            out = self.emit(ids, self.asserted, rows if self.want_logprobs else ())
        if self.ending is None and not self.backlog:
            last, self.first_row = self.first_row, None
            out += self.emit(result.sampled, SAMPLED, [last], alone=not ids)
        return out

    # --- the drafter's view of the rest ---------------------------------------------------

    def note_aux_states(self, aux_states: mx.array | None) -> None:
        """AuxStates ``[1, S, n*H]`` of a forward that was not the drafter's round."""
        if self.drafting is not None:
            self.drafting.note(aux_states)

    def rest_drafter(self, steps: int = 1) -> None:
        """So many plain steps, or another's round, went by."""
        drafting = self.drafting
        if drafting is not None and steps:
            drafting.rests(steps)
            if self.ending is None:  # else it need not know any more
                drafting.others_chose(self.session.tokens, self.forwarder.held)

    # --- emitting -------------------------------------------------------------------------

    def emit_judged(
        self, values: abc.Sequence[int], judged: VerifyResult, origin: str
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
        ids: abc.Sequence[int],
        origin: str,
        rows: abc.Sequence[mx.array | None],
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
        ids: abc.Sequence[int],
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
        fill = self.counters.fill(self.session.source_counts())
        return fill, spec
