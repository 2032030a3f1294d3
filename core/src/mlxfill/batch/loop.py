"""The decode loop for several rows: one forward a round serves them all.

The same two states as for one row.  *Cold*: the step for every row's next token is dispatched
from unread samples.  *Hot*: every row's newest token is known; rows that have an offer put it
behind that token, the others ride along, and each keeps what its own target agrees with.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import mlx.core as mx
from attrs import define, evolve, field

from mlxfill.batch.runner import BatchRunner, RowWindow
from mlxfill.contracts import Policy
from mlxfill.model.reading import ids as ids_of
from mlxfill.model.reading import row as row_of
from mlxfill.policy.clock import StepClock
from mlxfill.policy.plan import Candidate, Outcome, best_plan
from mlxfill.request.results import SAMPLED

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mlxfill.decode.course import Course, Emitted
    from mlxfill.forward.runner import VerifyResult
    from mlxfill.model.reading import Stream
    from mlxfill.model.target import Target
    from mlxfill.policy.cost import CostCurve
    from mlxfill.proposals.drafting import Drafting
    from mlxfill.proposals.session import Offer


@define(eq=False)
class Row:
    """One request among others.

    ``backlog``: asserted ids that are known and not yet forwarded, from ``origin``; ``first_row``:
    the log-probabilities that the first of them replaces, where they are known already.
    ``skips``: the sample in flight is for a position that an asserted id took.  ``drafts``: its
    drafter has the next window.  ``first``: takes the sample after the prompt's last token, which
    has not been forwarded yet.
    """

    course: Course
    backlog: list[int] = field(factory=list)
    origin: str = SAMPLED
    offer: Offer | None = None
    skips: bool = False
    drafts: bool = False
    first: Callable[[int, mx.array], list[Emitted]] | None = None
    first_row: mx.array | None = None

    @property
    def overlaps(self) -> bool:
        """Whether the next step may be dispatched before the token in flight is read.

        Whoever offers or processes tokens sees the first one before anything follows it.
        """
        course = self.course
        return self.first is None or not (course.asks or course.forwarder.one_by_one)


class RowLoop:
    """Rows that share forwards.  Rows join and leave between rounds.

    At a boundary (no flight) the caches hold every token of each row but its newest.
    """

    def __init__(self, target: Target, stream: Stream) -> None:
        """No rows yet; ``stream``: where the target computes."""
        self.forwarder = BatchRunner(target, stream)
        self.rows: list[Row] = []
        self._flight: tuple[mx.array, mx.array] | None = None
        self._hot = False
        self._clock = StepClock()
        self._started = 0.0

    # --- rows ---------------------------------------------------------------------------------

    def join(self, rows: Sequence[Row]) -> None:
        """Rows at a boundary join; only between flights."""
        self.forwarder.join([row.course.forwarder for row in rows])
        self.rows += rows

    def leave(self, rows: Sequence[Row], *, with_caches: bool = False) -> None:
        """Rows leave, ``with_caches`` of as many tokens as their forwarders say."""
        gone = [at for at, row in enumerate(self.rows) if row in rows]
        self.forwarder.leave(gone, with_caches=gone if with_caches else ())
        self.rows = [row for row in self.rows if row not in rows]
        if self._flight is not None and gone:
            stay = mx.array([at for at in range(len(gone) + len(self.rows)) if at not in gone])
            chosen, logprobs = self._flight
            self._flight = (chosen[stay], logprobs[stay]) if self.rows else None

    # --- rounds -------------------------------------------------------------------------------

    @property
    def settled(self) -> bool:
        """Whether every row is at a boundary: rows may join, and go on elsewhere."""
        return self._flight is None and not any(row.backlog or row.first for row in self.rows)

    def round(self, *, pausing: bool = False) -> list[tuple[Row, list[Emitted]]]:
        """New tokens of each row; ``pausing``: begin nothing that leads beyond a boundary."""
        self._started = time.perf_counter()
        if self._flight is not None:
            return self._cold(pausing=pausing)
        windows = self._windows()
        if pausing or max(window.size for window in windows) > 1 or not self.settled:
            return self._judge(windows)
        self._flight = self._dispatch(row_of([window.known[0] for window in windows]), unread=0)
        self._clock = StepClock()
        self._hot = any(row.course.starts_hot(row.offer) for row in self.rows)
        return self._cold(pausing=False)

    # --- hot ----------------------------------------------------------------------------------

    def _windows(self) -> list[RowWindow]:
        """What each row puts into the next window; asks sources and drafters."""
        candidates = [self._candidate(row) for row in self.rows]
        gate = self.rows[0].course.gate
        if gate.enabled:
            size = best_plan(candidates, self.curve, gate.budget.steps, gate.stall).size
        else:
            size = max(each.known + each.limit for each in candidates)
        pairs = zip(self.rows, candidates, strict=True)
        return [self._window(row, candidate, size) for row, candidate in pairs]

    def _candidate(self, row: Row) -> Candidate:
        """What a row could put into the next window, and who would fill it."""
        course, row.drafts = row.course, False
        if row.first is not None:
            return Candidate()
        if not row.backlog:
            row.offer = offer = course.ask()
            if offer is not None and offer.policy is Policy.ASSERT:
                self._assert(row, offer, wasted_sample=False)
        known = len(course.session.tokens) - course.forwarder.held + len(row.backlog)
        if row.backlog:
            return Candidate(known)
        offer, drafting, room = row.offer, course.drafting, course.room()
        may_draft = drafting is not None and drafting.limit(room) > 0
        if offer is not None and (not may_draft or course.plan_offer(offer).depth):
            return course.candidate(offer, known=known)
        if drafting is None or not may_draft:
            return Candidate(known)
        row.drafts = True
        one = self._curve_of_one
        candidate = drafting.candidate(one, room)
        share = candidate.draft_cost / one.cost(len(self.rows))
        return evolve(candidate, known=known, draft_cost=share, proven=0)

    def _assert(self, row: Row, offer: Offer, *, wasted_sample: bool) -> None:
        row.course.account_span(offer, wasted_sample=wasted_sample)
        row.backlog, row.origin = list(offer.ids), offer.proposal.origin
        row.offer = None

    def _window(self, row: Row, candidate: Candidate, size: int) -> RowWindow:
        course = row.course
        tokens, held = course.session.tokens, course.forwarder.held
        want_known = course.want_logprobs or course.forwarder.shows_asserted
        if row.backlog:
            known = [*tokens[held:], *row.backlog][:size]
            return RowWindow(known, (), want_known, more_known=len(known) < candidate.known)
        depth = min(size - 1, candidate.limit)
        if row.drafts and course.drafting is not None:
            return RowWindow(tokens[held:], self._drafts(row, course.drafting, depth))
        return RowWindow(tokens[held:], row.offer.ids[:depth] if row.offer else ())

    @staticmethod
    def _drafts(row: Row, drafting: Drafting, depth: int) -> Sequence[int] | mx.array:
        """Ask a row's drafter, or let it rest."""
        course = row.course
        depth = depth or drafting.explored(course.gate, course.room())
        row.drafts = depth > 0
        if not depth:
            drafting.left_out += course.gate.enabled
            return ()
        tokens = course.session.tokens
        drafting.catch_up(tokens, course.forwarder.held)
        return drafting.draft(tokens[-1], depth, len(tokens))

    def _judge(self, windows: Sequence[RowWindow]) -> list[tuple[Row, list[Emitted]]]:
        started = time.perf_counter()
        pairs = zip(self.rows, windows, strict=True)
        sessions = [self._session(row, window) for row, window in pairs]
        judged = self.forwarder.judge(windows, sessions)
        ended = time.perf_counter()
        out = []
        for row, window, (said, values) in zip(self.rows, windows, judged, strict=True):
            if row.course.forwarder not in self.forwarder.failures:
                out.append((row, self._entered(row, window, said, values)))
        self._book(windows, judged, ended - self._started)
        size = max(window.size for window in windows)
        if size > 1:
            self.curve.observe(size, (ended - started) * 1e3)
        return out

    @staticmethod
    def _session(row: Row, window: RowWindow) -> Sequence[int]:
        """All tokens of a row, the known ids of its window included: its own list where it can."""
        tokens = row.course.session.tokens
        return [*tokens[: row.course.forwarder.held], *window.known] if row.backlog else tokens

    def _book(
        self,
        windows: Sequence[RowWindow],
        judged: Sequence[tuple[VerifyResult, list[int]]],
        seconds: float,
    ) -> None:
        """Book what the drafts of a round of so many seconds won or lost, as one row does."""
        outcomes = [
            Outcome(len(window.known), len(values), said.accepted)
            for window, (said, values) in zip(windows, judged, strict=True)
        ]
        gate, curve = self.rows[0].course.gate, self.curve
        gate.budget.refill()
        if not any(outcome.drafted for outcome in outcomes):
            return
        told_s = sum(row.course.told_s() for row in self.rows)
        pairs = list(zip(self.rows, outcomes, strict=True))
        own = [outcome.drafted * self._draft_cost(row) for row, outcome in pairs if row.drafts]
        bound = curve.bound(max(window.size for window in windows)) + sum(own)
        seconds = max(seconds - told_s, 0.0)
        won = gate.charge(outcomes, curve, drafting=sum(own), seconds=seconds, bound=bound)
        for row in self.rows:
            if row.drafts and row.course.drafting is not None:
                row.course.drafting.drafter.won(won / len(own))

    def _draft_cost(self, row: Row) -> float:
        """Of one draft for a row, in plain steps of all rows."""
        drafting = row.course.drafting
        cost = drafting.drafter.cost or 0.0 if drafting is not None else 0.0
        return cost / self._curve_of_one.cost(len(self.rows))

    def _entered(
        self, row: Row, window: RowWindow, said: VerifyResult, values: list[int]
    ) -> list[Emitted]:
        """Settle one row's part of a window and enter its tokens."""
        course, taps = row.course, row.course.forwarder.last_taps
        if row.first is not None:
            return self._begun(row, said.sampled[0], said.logprobs[0])
        if row.backlog:
            return self._injected(row, window, said)
        offer, row.offer = row.offer, None
        if row.drafts and course.drafting is not None and values:
            drafting = course.drafting
            course.tally(drafting.origin, len(values), said.accepted)
            if offer is not None:
                course.follow(offer, said.sampled)
            if course.session.on_drafts is not None:
                course.session.on_drafts(drafting, values, said)
            drafting.commit(len(values), said.accepted, said.sampled, taps)
            return course.emit_judged(values, said, drafting.origin)
        course.note_taps(taps)
        course.counters.steps += not values
        if offer is not None and values:
            course.tally(offer.proposal.origin, len(values), said.accepted)
            course.settle_window(offer, said)
        elif offer is not None:
            course.follow(offer, said.sampled)
        out = course.emit_judged(values, said, offer.proposal.origin if offer else SAMPLED)
        course.rest_drafter()
        return out

    def _begun(self, row: Row, sample: int, logprobs: mx.array) -> list[Emitted]:
        assert row.first is not None  # noqa: S101 - the caller made sure
        first, row.first = row.first, None
        try:
            return first(sample, logprobs)
        except Exception as error:  # noqa: BLE001 - a caller's callback may raise anything
            self.forwarder.failures[row.course.forwarder] = error
            return []

    @staticmethod
    def _injected(row: Row, window: RowWindow, said: VerifyResult) -> list[Emitted]:
        """The window held asserted ids; the last part of a span is followed by a sample."""
        course = row.course
        course.note_taps(course.forwarder.last_taps)
        before = course.forwarder.held - len(window.known)
        ids = window.known[len(course.session.tokens) - before :]
        row.backlog = row.backlog[len(ids) :]
        rows: list[mx.array | None] = [*said.known_logprobs, said.logprobs[0]]
        if len(ids) == len(window.known):  # the first one's were computed before
            rows = [row.first_row, *rows]
        row.first_row = last = rows.pop()
        out: list[Emitted] = []
        if ids:
            out = course.emit(ids, row.origin, rows if course.want_logprobs else ())
        if course.ending is None and not window.more_known:
            row.first_row = None
            out += course.emit(said.sampled, SAMPLED, [last], alone=not ids)
        return out

    # --- cold ---------------------------------------------------------------------------------

    def _dispatch(self, pending: mx.array, *, unread: int) -> tuple[mx.array, mx.array]:
        sessions = [row.course.session.tokens for row in self.rows]
        flight = self.forwarder.step(pending, sessions, unread)
        for row in self.rows:
            row.course.counters.in_flight += 1
            if row.first is None or unread:
                row.course.counters.steps += 1
                row.course.note_taps(row.course.forwarder.last_taps)
        return flight

    def _cold(self, *, pausing: bool) -> list[tuple[Row, list[Emitted]]]:
        """Read the samples in flight, after dispatching the next step unless someone waits."""
        assert self._flight is not None  # noqa: S101 - the caller made sure
        chosen, logprobs = self._flight
        self._clock.start()
        ahead = self._dispatch(chosen, unread=1) if self._goes_on(pausing=pausing) else None
        tokens = ids_of(chosen)
        self._clock.read()
        self._flight = ahead
        out = []
        for at, row in enumerate(self.rows):
            row.course.counters.in_flight -= 1
            if row.course.forwarder in self.forwarder.failures:
                continue
            out.append((row, self._sampled(row, tokens[at], logprobs[at])))
        if ahead is not None:
            self._learn()
            looks = [self._looks(row) for row in self.rows]  # each must look
            self._hot = any(looks)
            self._clock.ready()
        return out

    def _goes_on(self, *, pausing: bool) -> bool:
        if pausing or self._hot:
            return False
        return all(
            row.overlaps and row.course.budget > 1 and not row.course.cancelled()
            for row in self.rows
        )

    def _sampled(self, row: Row, token: int, logprobs: mx.array) -> list[Emitted]:
        course = row.course
        if row.first is not None:
            return self._begun(row, token, logprobs)
        if row.skips:
            row.skips, row.first_row = False, logprobs
            return []
        if row.offer is not None:
            course.follow(row.offer, (token,), left_out=not self._hot)
            row.offer = None
        return course.emit((token,), SAMPLED, [logprobs])

    def _looks(self, row: Row) -> bool:
        """After a step, with another in flight: whether the next token is to be read first."""
        course = row.course
        if course.ending is not None:
            return False
        course.rest_drafter()
        row.offer = offer = course.ask()
        if offer is not None and offer.policy is Policy.ASSERT:
            self._assert(row, offer, wasted_sample=True)
            row.skips = True
            return True
        return course.wants_hot(offer)

    def _learn(self) -> None:
        gate = self.rows[0].course.gate
        gate.budget.refill()
        if self._clock.step_s and not self.curve.fixed:
            self.curve.observe(1, self._clock.step_s * 1e3)

    @property
    def _curve_of_one(self) -> CostCurve:
        """Costs for one row, from a request that speculates if there is one."""
        curves = [row.course.gate.curve for row in self.rows]
        return max(curves, key=lambda curve: len(curve.points))

    @property
    def curve(self) -> CostCurve:
        """Costs for as many rows as there are now."""
        return self._curve_of_one.for_rows(len(self.rows))
