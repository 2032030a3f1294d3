"""The decode loop: one loop for plain decoding, fills and drafts.

Two states.  *Cold*: the step for token n + 1 is dispatched from the unread token n, then n
is read while it runs, as mlx-lm does; sources are asked meanwhile and lose nothing.
*Hot*: the pending token is known to the host and goes into a window together with what a
source or drafter offers.  A cold loop turns hot when an offer promises enough to give up
one overlap of host and device; a hot loop turns cold when nothing pays.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from mlxfill.contracts import Policy
from mlxfill.decode.course import Course, Emitted, Ending
from mlxfill.model.reading import one_id, row
from mlxfill.policy.clock import StepClock
from mlxfill.policy.plan import Plan
from mlxfill.request.results import SAMPLED

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import mlx.core as mx

    from mlxfill.forward.runner import VerifyResult
    from mlxfill.proposals.drafting import Drafting
    from mlxfill.proposals.session import Offer

    Flight = tuple[mx.array, mx.array]


class DecodeLoop(Course):
    """Runs one request from its first token on.

    At every yield the caches hold ``forwarder.held`` tokens of ``session.tokens`` (and the
    ``ending.eos`` after them where its step had already been dispatched).  While ``paused()``
    answers true nothing new is begun: the iterator ends with ``ending`` None and the caches hold
    every token but the newest; ``go_on()`` continues from there.
    """

    def go_on(self) -> Iterator[Emitted]:
        """From the first token, or from a pause, to the end or to the next pause."""
        self.clock, self.uneven = StepClock(), False  # nobody knows how long it rested
        while self.ending is None and not self.paused():
            if self.cancelled():  # while a burst was read
                self.ending = Ending("cancelled")
                return
            yield from self._hot()

    # --- hot: the newest token is read and not yet forwarded -----------------------------

    def _hot(self) -> Iterator[Emitted]:
        """Ask everyone; what then comes, until the newest token is to be read first again."""
        offer = self.ask()
        if offer is not None and offer.policy is Policy.ASSERT:
            return self._inject(offer, None)
        plan = self.plan_offer(offer) if offer else Plan()
        if offer and plan.depth:
            return self._verify(offer, plan.depth, explores=plan.explores)
        drafting = self.drafting
        drafts = self._draft(drafting) if drafting else ()
        if drafting and len(drafts):
            return self._draft_round(drafting, drafts, offer)
        return self._cold(offer)

    def _verify(self, offer: Offer, depth: int, *, explores: bool) -> Iterator[Emitted]:
        """Window of the pending token and the first ``depth`` ids of a source's offer."""
        started = time.perf_counter()
        if self.forwarder.phases is not None:
            self.forwarder.phases.begin()
        judged, values = self._judge(offer.ids[:depth], offer.proposal.origin)
        won = self.book_round(depth, judged.accepted, self.gate.curve.bound(1 + depth))
        self.gate.curve.observe(1 + depth, (time.perf_counter() - started) * 1e3)
        if explores:
            offer.seat.acceptance.retry.begin()
        if won > 0:
            offer.seat.acceptance.retry.paid()
        self.settle_window(offer, judged)
        self.note_taps(self._kept_taps(1 + judged.accepted))
        yield from self.handed(self.emit_judged(values, judged, offer.proposal.origin))
        self.rest_drafter()

    def _draft(self, drafting: Drafting) -> Sequence[int] | mx.array:
        depth = drafting.plan(self.gate, self.room()).depth
        if not depth:
            return ()
        tokens, phases = self.session.tokens, self.forwarder.phases
        if phases is not None:
            phases.begin()
        drafting.catch_up(tokens, self.forwarder.held)
        drafts = drafting.draft(tokens[-1], depth, len(tokens))
        if phases is not None:
            phases.end("draft", drafts)
        return drafts

    def _draft_round(
        self, drafting: Drafting, drafts: Sequence[int] | mx.array, offer: Offer | None
    ) -> Iterator[Emitted]:
        """Window of the pending token and what the drafter guesses."""
        drafter, curve, rewound = drafting.drafter, self.gate.curve, self.rewound
        judged, values = self._judge(drafts, drafting.origin)
        depth = len(values)
        size_cost = (curve.cost if depth <= drafter.proven else curve.bound)(1 + depth)
        cost = depth * drafter.draft_cost(curve, self.gate.stall)
        won = self.book_round(depth, judged.accepted, size_cost + cost, cost)
        drafter.won(won)
        if offer is not None:
            self.follow(offer, judged.sampled)
        if self.session.on_drafts is not None:
            self.session.on_drafts(drafting, values, judged)
        drafting.commit(
            len(values), judged.accepted, judged.sampled, self._kept_taps(1 + judged.accepted)
        )
        if self.forwarder.phases is not None:
            self.forwarder.phases.end("commit")
        if depth and self.spent_s:
            drafter.timed(depth, self.spent_s * 1e3, rewound=rewound)
        yield from self.handed(self.emit_judged(values, judged, drafting.origin))

    def _judge(
        self, drafts: Sequence[int] | mx.array, origin: str
    ) -> tuple[VerifyResult, list[int]]:
        tokens = self.session.tokens
        judged, values = self.forwarder.judge(tokens[-1:], drafts, len(tokens) - 1, tokens)
        self.tally(origin, len(values), judged.accepted)
        self.rewound = judged.accepted < len(values)
        self.gate.curve.windows += 1
        return judged, values

    # --- cold: a step is in flight ------------------------------------------------------

    def _cold(self, offer: Offer | None) -> Iterator[Emitted]:
        """Pipelined steps, until the end or until someone asks for the token in flight."""
        return self._watched(offer) if self.asks else self._alone()

    def _alone(self) -> Iterator[Emitted]:
        """Steps to the end with nobody to ask."""
        flight = self._dispatch(row(self.session.tokens[-1:]), unread=0)
        while True:
            more = self.session.budget > 1 and not self._halts()
            ahead = self._dispatch(flight[0], unread=1) if more else None
            token = self._read(flight)
            if self.enter((token,), flight[1]):
                yield Emitted(token, SAMPLED, flight[1])
            if ahead is None or self.ending is not None:
                return
            flight = ahead

    def _watched(self, offer: Offer | None) -> Iterator[Emitted]:
        """Steps until an offer, a drafter or the end asks for the token in flight."""
        flight = self._dispatch(row(self.session.tokens[-1:]), unread=0)
        hot, left_out = self.starts_hot(offer), True
        clock, silence, passed = self.clock, self.silence, 0
        while True:
            more = not hot and self.budget > 1 and not self._halts()
            ahead = self._dispatch(flight[0], unread=1) if more else None
            token = self._read(flight)
            clock.read()
            self.book_step()
            if offer is not None:
                self.follow(offer, (token,), left_out=left_out)
            if self.enter((token,), flight[1]):
                clock.ready()
                yield Emitted(token, SAMPLED, flight[1])
                clock.start()
            if ahead is None or self.ending is not None:
                self.rest_drafter(passed)
                self.uneven = True
                return
            flight, passed = ahead, passed + 1
            if passed < silence:
                continue
            self.rest_drafter(passed)
            self._learn(clock, passed)
            offer = self.ask()
            if offer is not None and offer.policy is Policy.ASSERT:
                yield from self._inject(offer, flight)
                return
            hot = self.wants_hot(offer)
            offer = offer if hot else self.rest_sources(offer)
            left_out, silence, passed = not hot, self.silence, 0

    def _halts(self) -> bool:
        """Whether nothing more is wanted after the token in flight."""
        return self.cancelled() or self.paused()

    def _dispatch(self, pending: mx.array, *, unread: int) -> Flight:
        """Forward ``pending``; ``unread`` tokens of the session are not yet known to the host."""
        tokens = self.session.tokens
        out = self.forwarder.step(pending, tokens, len(tokens) + unread)
        self.counters.steps += 1
        self.counters.in_flight += 1
        self.note_taps(self.forwarder.last_taps)
        return out

    def _read(self, flight: Flight) -> int:
        self.counters.in_flight -= 1
        started = time.perf_counter()
        token = one_id(flight[0])
        self.waited_s = time.perf_counter() - started
        return token

    def _learn(self, clock: StepClock, steps: int) -> None:
        self.gate.budget.refill(steps)
        if clock.step_s and self.even and not self.gate.curve.fixed:
            self.gate.curve.observe(1, clock.step_s * 1e3)
            self.gate.curve.stall = min(self.forwarder.build_s / clock.step_s, 1.0)

    # --- asserted spans ---------------------------------------------------------------------

    def _inject(self, offer: Offer, flight: Flight | None) -> Iterator[Emitted]:
        """Append an asserted span unread; the target speaks again after its last id.

        ``flight``: a sample dispatched for the span's first position; it is dropped.
        Without one the pending token goes into the window first.
        """
        session, ids = self.session, offer.ids
        known = list(ids) if flight else [*session.tokens[-1:], *ids]
        self.account_span(offer, wasted_sample=flight is not None)
        final = self.budget <= len(ids)
        if final:
            known.pop()  # as anywhere, the caches end before the newest token
        sampled, rows = self._append(known, final=final)
        self.clock.read()  # nobody bet on it: its time is no one's loss
        self.uneven = True
        if flight:
            self.counters.in_flight -= 1
            rows.insert(0, flight[1])
        last = None if final else rows.pop()
        yield from self.emit(ids, offer.proposal.origin, rows if self.want_logprobs else ())
        if self.ending is None:
            yield from self.emit([sampled], SAMPLED, [last], alone=False)

    def _append(self, known: list[int], *, final: bool) -> tuple[int, list[mx.array | None]]:
        """Forward ``known`` in chunks: the sample after it and log-probability rows.

        Rows are only computed when asked for or shown to processors; ``final`` spans
        need no sample (the answer is then 0).
        """
        forwarder = self.forwarder
        each = self.want_logprobs or forwarder.shows_asserted
        rows: list[mx.array | None] = []
        sampled, done = 0, 0
        full = [*self.session.tokens[: forwarder.held], *known]
        while done < len(known):
            part = known[done : done + self._chunk(len(known))]
            done += len(part)
            if forwarder.phases is not None:
                forwarder.phases.begin()
            if each or (done == len(known) and not final):
                judged, _ = forwarder.judge(part, (), forwarder.held, full, want_known=each)
                rows += [*judged.known_logprobs, judged.logprobs[0]]
                sampled = judged.sampled[0]
            else:
                forwarder.append(part)
            self.note_taps(forwarder.last_taps)
        return sampled, rows

    def _chunk(self, size: int) -> int:
        limits = (self.append_chunk, self.forwarder.room(), size)
        return min(n for n in limits if n)

    def _kept_taps(self, keep: int) -> mx.array | None:
        taps = self.forwarder.last_taps
        return None if taps is None else taps[:, :keep]
