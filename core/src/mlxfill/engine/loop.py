"""The decode loop: one loop for plain decoding, fills and drafts.

Two states.  *Cold*: the step for token n + 1 is dispatched from the unread token n, then n
is read while it runs, as mlx-lm does; sources are asked meanwhile and lose nothing.
*Hot*: the pending token is known to the host and goes into a window together with what a
source or drafter offers.  A cold loop turns hot when an offer promises enough to give up
one overlap of host and device; a hot loop turns cold when nothing pays.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import mlx.core as mx
from attrs import define

from mlxfill.contracts import Policy
from mlxfill.engine.counters import Counters, StepClock
from mlxfill.engine.gate import NOTHING, Gate, Plan
from mlxfill.engine.results import SAMPLED
from mlxfill.model.reading import one_id, row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from mlxfill.engine.drafting import Drafting
    from mlxfill.engine.forward import Forwarder, Judged
    from mlxfill.engine.results import FinishReason
    from mlxfill.engine.session import Offer, Session

    Flight = tuple[mx.array, mx.array]

CLEAR_EVERY = 256
BUBBLE = 0.08
"""First guess at the share of a step that is lost when the host waits before it dispatches."""
FOLLOW = 0.1


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


class DecodeLoop:
    """Runs one request from its first sample on.

    At every yield the caches hold ``forwarder.held`` tokens of ``session.tokens`` (and the
    ``ending.eos`` after them where its step had already been dispatched).
    """

    def __init__(  # noqa: PLR0913 - all state of one request, made by the engine
        self,
        forwarder: Forwarder,
        session: Session,
        gate: Gate,
        drafting: Drafting | None,
        *,
        want_logprobs: bool,
        append_chunk: int,
        cancelled: Callable[[], bool],
    ) -> None:
        """``append_chunk``: most ids of an asserted span per forward, 0: all."""
        self.forwarder, self.session, self.gate = forwarder, session, gate
        self.drafting, self.cancelled = drafting, cancelled
        self.counters = Counters()
        self.ending: Ending | None = None
        self._want_logprobs, self._append_chunk = want_logprobs, append_chunk
        self._bubble = BUBBLE
        self._uncleared = 0
        self._burst_open = False

    @property
    def budget(self) -> int:
        """Tokens that may still be emitted."""
        return self.session.view.budget

    def run(self, first: Flight) -> Iterator[Emitted]:
        """From the first sample, still unread, to the end."""
        yield from self._emit([one_id(first[0])], SAMPLED, [first[1]])
        while self.ending is None:
            yield from self._hot()

    # --- hot: the newest token is read and not yet forwarded -----------------------------

    def _hot(self) -> Iterator[Emitted]:
        offer = self._ask()
        if offer is not None and offer.policy is Policy.ASSERT:
            yield from self._inject(offer, None)
            return
        depth = self._plan_offer(offer).depth if offer else 0
        if offer and depth:
            yield from self._verify(offer, depth)
            return
        drafting = self.drafting
        drafts = self._draft(drafting) if drafting else ()
        if drafting and len(drafts):
            yield from self._draft_round(drafting, drafts, offer)
            return
        yield from self._cold(offer)

    def _verify(self, offer: Offer, depth: int) -> Iterator[Emitted]:
        """Window of the pending token and the first ``depth`` ids of a source's offer."""
        started = time.perf_counter()
        if self.forwarder.phases is not None:
            self.forwarder.phases.begin()
        judged, values = self._judge(offer.ids[:depth], offer.proposal.origin)
        self.gate.observed(1 + depth, (time.perf_counter() - started) * 1e3)
        accepted = judged.accepted
        instead = judged.sampled[accepted] if accepted < depth else None
        self.session.settle(accepted, min(accepted + 1, depth), instead)
        if self.drafting is not None:
            self.drafting.note(self._kept_taps(1 + accepted))
        yield from self._emit_judged(values, judged, offer.proposal.origin)
        self._rest_drafter()

    def _draft(self, drafting: Drafting) -> Sequence[int] | mx.array:
        depth = drafting.plan(self.gate, self._room()).depth
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
        judged, values = self._judge(drafts, drafting.origin, drafting.draft_cost)
        if offer is not None:
            self._settle_first(offer, judged.sampled[0])
        if self.session.on_drafts is not None:
            self.session.on_drafts(drafting, values, judged)
        drafting.commit(
            len(values), judged.accepted, judged.sampled, self._kept_taps(1 + judged.accepted)
        )
        if self.forwarder.phases is not None:
            self.forwarder.phases.end("commit")
        drafting.timed(self.gate, len(values))
        yield from self._emit_judged(values, judged, drafting.origin)

    def _judge(
        self, drafts: Sequence[int] | mx.array, origin: str, draft_cost: float = 0.0
    ) -> tuple[Judged, list[int]]:
        tokens = self.session.tokens
        judged, values = self.forwarder.judge(tokens[-1:], drafts, len(tokens) - 1, tokens)
        self.counters.windows += 1
        self.counters.drafted_from[origin] += len(values)
        self.counters.accepted_from[origin] += judged.accepted
        self.gate.settle(len(values), judged.accepted, draft_cost)
        return judged, values

    # --- cold: a step is in flight ------------------------------------------------------

    def _cold(self, offer: Offer | None) -> Iterator[Emitted]:
        """Pipelined steps, until the end or until someone asks for the token in flight."""
        return self._watched(offer) if self.session.seats or self.drafting else self._alone()

    def _alone(self) -> Iterator[Emitted]:
        """Steps to the end with nobody to ask."""
        flight = self._dispatch(row(self.session.tokens[-1:]), unread=0)
        while True:
            more = self.session.budget > 1 and not self.cancelled()
            ahead = self._dispatch(flight[0], unread=1) if more else None
            token = one_id(flight[0])
            if self._enter((token,), flight[1]):
                yield Emitted(token, SAMPLED, flight[1])
            if ahead is None or self.ending is not None:
                return
            flight = ahead

    def _watched(self, offer: Offer | None) -> Iterator[Emitted]:
        """Steps until an offer, a drafter or the end asks for the token in flight."""
        flight = self._dispatch(row(self.session.tokens[-1:]), unread=0)
        hot = self.session.near() or (offer is not None and self._promising(offer))
        clock = StepClock()
        while True:
            clock.start()
            more = not hot and self.budget > 1 and not self.cancelled()
            ahead = self._dispatch(flight[0], unread=1) if more else None
            token = one_id(flight[0])
            clock.read()
            if offer is not None:
                self._settle_first(offer, token)
            if self._enter((token,), flight[1]):
                yield Emitted(token, SAMPLED, flight[1])
            if ahead is None or self.ending is not None:
                return
            self._rest_drafter()
            self._learn(clock)
            offer = self._ask()
            if offer is not None and offer.policy is Policy.ASSERT:
                yield from self._inject(offer, ahead)
                return
            hot = self._wants_hot(offer)
            clock.ready()
            flight = ahead

    def _dispatch(self, pending: mx.array, *, unread: int) -> Flight:
        """Forward ``pending``; ``unread`` tokens of the session are not yet known to the host."""
        tokens = self.session.tokens
        out = self.forwarder.step(pending, tokens, len(tokens) + unread)
        self.counters.steps += 1
        self._note_taps()
        return out

    def _wants_hot(self, offer: Offer | None) -> bool:
        if offer is not None and self._promising(offer):
            return True
        if self.session.near():
            return True
        drafting = self.drafting
        return drafting is not None and drafting.plan(self.gate, self._room() - 1).depth > 0

    def _promising(self, offer: Offer) -> bool:
        """Whether waiting for the sample in flight is worth the overlap that it costs."""
        if not self.gate.enabled:
            return True
        survival, evidence = offer.seat.survival, offer.evidence
        limit = min(len(offer.ids), self._room()) - 1
        plan = self.gate.plan(survival, evidence + 1, limit)
        return survival.rate(evidence) * plan.gain > self._bubble and self.gate.pay(self._bubble)

    def _settle_first(self, offer: Offer, token: int) -> None:
        """A plain step tells for free whether the offer's first id was right."""
        hit = offer.ids[0] == token
        self.session.settle(int(hit), 1, None if hit else token)

    def _learn(self, clock: StepClock) -> None:
        self.gate.purse.stepped()
        if clock.step_s and not self.gate.curve.fixed:
            self.gate.observed(1, clock.step_s * 1e3)
            share = min(self.forwarder.build_s / clock.step_s, 1.0)
            self._bubble += FOLLOW * (share - self._bubble)

    # --- asserted spans ---------------------------------------------------------------------

    def _inject(self, offer: Offer, flight: Flight | None) -> Iterator[Emitted]:
        """Append an asserted span unread; the target speaks again after its last id.

        ``flight``: a sample dispatched for the span's first position; it is dropped.
        Without one the pending token goes into the window first.
        """
        session, ids = self.session, offer.ids
        known = list(ids) if flight else [*session.tokens[-1:], *ids]
        session.settle(len(ids), len(ids))
        self.counters.fill_events += 1
        self.counters.truncations += len(ids) < len(offer.proposal.ids)
        self.counters.span_lengths.append(len(ids))
        self.counters.injected_from[offer.proposal.origin] += len(ids)
        self.counters.wasted_samples += flight is not None
        final = self.budget <= len(ids)
        sampled, rows = self._append(known, final=final)
        if flight:
            rows.insert(0, flight[1])
        last = None if final else rows.pop()
        yield from self._emit(ids, offer.proposal.origin, rows if self._want_logprobs else ())
        if self.ending is None:
            yield from self._emit([sampled], SAMPLED, [last])

    def _append(self, known: list[int], *, final: bool) -> tuple[int, list[mx.array | None]]:
        """Forward ``known`` in chunks: the sample after it and log-probability rows.

        Rows are only computed when asked for or seen by processors; ``final`` spans
        need no sample (the answer is then 0).
        """
        forwarder = self.forwarder
        each = self._want_logprobs or bool(forwarder.processors)
        rows: list[mx.array | None] = []
        sampled, done = 0, 0
        full = [*self.session.tokens[: forwarder.held], *known]
        while done < len(known):
            part = known[done : done + self._chunk(len(known))]
            done += len(part)
            if each or (done == len(known) and not final):
                judged, _ = forwarder.judge(part, (), forwarder.held, full, want_known=each)
                rows += [*judged.known_logprobs, judged.logprobs[0]]
                sampled = judged.sampled[0]
            else:
                forwarder.append(part)
            self._note_taps()
        return sampled, rows[:-1] if final and rows else rows

    def _chunk(self, size: int) -> int:
        limits = (self._append_chunk, self.forwarder.room(), size)
        return min(n for n in limits if n)

    # --- plans ---------------------------------------------------------------------------

    def _ask(self) -> Offer | None:
        offer = self.session.ask()
        if offer is None:
            self.session.drop_streaks()
        return offer

    def _room(self) -> int:
        """Most ids that a window after the pending token may draft now."""
        room, limit = self.budget - 1, self.forwarder.room()
        return room if limit is None else min(room, limit - 1)

    def _plan_offer(self, offer: Offer) -> Plan:
        limit = min(len(offer.ids), self._room())
        return self.gate.plan(offer.seat.survival, offer.evidence, limit) if limit > 0 else NOTHING

    # --- the drafter's view of the rest ---------------------------------------------------

    def _note_taps(self) -> None:
        if self.drafting is not None:
            self.drafting.note(self.forwarder.last_taps)

    def _rest_drafter(self) -> None:
        if self.drafting is not None:
            self.drafting.rest(self.session.tokens, self.forwarder.held)

    def _kept_taps(self, keep: int) -> mx.array | None:
        taps = self.forwarder.last_taps
        return None if taps is None else taps[:, :keep]

    # --- emitting -------------------------------------------------------------------------

    def _emit_judged(self, values: list[int], judged: Judged, origin: str) -> Iterator[Emitted]:
        n, rows = judged.accepted, judged.logprobs
        if n:
            yield from self._emit(values[:n], origin, [rows[i] for i in range(n)], more=True)
        if self.ending is None:
            yield from self._emit(judged.sampled[n:], SAMPLED, [rows[n]])

    def _emit(
        self,
        ids: Sequence[int],
        origin: str,
        rows: Sequence[mx.array | None],
        *,
        more: bool = False,
    ) -> Iterator[Emitted]:
        """Enter tokens into the session, then yield them: a consumer may stop at any of them."""
        if self._enter(ids, rows[-1] if rows else None, more=more):
            for i, token in enumerate(ids):
                yield Emitted(token, origin, rows[i] if i < len(rows) else None)

    def _enter(self, ids: Sequence[int], last: mx.array | None, *, more: bool = False) -> bool:
        """Enter tokens into the session and decide about the end; False for EOS, which stays out.

        ``last``: the log-probabilities that the last one was chosen from.  ``more``: the same
        forward emits further tokens.  Only a sampled token can be EOS.
        """
        session = self.session
        if ids[-1] in session.rules.eos:
            self.ending = Ending("stop", ids[-1], last)
            return False
        session.add(ids)
        self._count(len(ids), more=more)
        if session.budget <= 0:
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
        spec = self.counters.spec(self.session)
        if self.drafting is not None:
            spec.update(self.drafting.stats())
        if self.forwarder.phases is not None:
            spec["phase_ms"] = {k: round(v, 3) for k, v in self.forwarder.phases.ms.items()}
        return self.counters.fill(self.session), spec
