"""The sources of one request: asking them, clamping what they offer, telling them the outcome."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

from attrs import define, evolve, field

from mlxfill.contracts import Fault, Policy, Proposal
from mlxfill.plugins.faults import charge, parted, recorded
from mlxfill.policy.acceptance import AcceptanceStats
from mlxfill.stats.counters import COST, END, JUDGED, SHORT, UNSUPPORTED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from mlxfill.contracts import ProposalSource
    from mlxfill.forward.runner import VerifyResult
    from mlxfill.proposals.drafting import Drafting

FIELDS: dict[str, type] = {
    "ids": tuple,
    "policy": Policy,
    "origin": str,
    "delimiter_bound": bool,
    "evidence": int,
}
"""A proposal's fields and their exact types: plugins are not always typed."""
PROPOSE_BUDGET_S = 0.05
SOON = 64
"""A source that takes longer than that for a call, twice within so many tokens, is quarantined."""


class SessionView:
    """The session as sources see it (``TokenView``): to read, not to change."""

    __slots__ = ("_session",)

    def __init__(self, session: Session) -> None:
        self._session = session

    @property
    def length(self) -> int:
        """Tokens in the session."""
        return len(self._session.tokens)

    @property
    def budget(self) -> int:
        """Tokens that may still be emitted."""
        return self._session.budget

    def tail(self, n: int) -> Sequence[int]:
        """The last ``n`` ids: a copy."""
        return self._session.tokens[-n:] if n > 0 else []


@define(eq=False)  # a seat is itself, whatever its source says about equality
class SourceState:
    """One source at the table."""

    plugin: str
    source: ProposalSource
    trusted: bool
    acceptance: AcceptanceStats = field(factory=AcceptanceStats)
    streak: int = 0
    slow_at: int | None = None
    near: Callable[[], bool] | None = None


@define
class Offer:
    """A clamped proposal, or what is left of one, waiting for its outcome.

    ``entered``: ids of the proposal that are in the session already, before ``ids``.  ``fate``:
    what will have become of it if nothing else happens.
    """

    seat: SourceState
    proposal: Proposal
    ids: tuple[int, ...]
    policy: Policy
    entered: int = 0
    fate: str = END

    @property
    def evidence(self) -> int:
        """Right ids that led up to this offer: the source's own count or our record of it."""
        return max(self.proposal.evidence + self.entered, self.seat.streak)


@define(kw_only=True)
class Rules:
    """What clamps need to know of a request.

    ``verify_pays``: whether the reply may be long enough for that; ``leaves_out``: whether a source
    that fails is left out; if not, it ends the request.
    """

    vocab_size: int
    eos: frozenset[int]
    delimiters: frozenset[int]
    max_span: int
    verify_supported: bool
    verify_pays: bool = True
    verify_only: bool = False
    propose_budget_s: float = PROPOSE_BUDGET_S
    leaves_out: bool = True


class Session:
    """Tokens of one request and the sources that watch them."""

    def __init__(
        self,
        tokens: list[int],
        budget: int,
        rules: Rules,
        seats: Iterable[SourceState],
        on_fault: Callable[[Fault], None],
    ) -> None:
        """``tokens`` are the prompt's; the session appends to that list."""
        self.tokens, self.budget = tokens, budget
        self.rules = rules
        self.seats = [s for s in seats if self._sane(s, on_fault)]
        self._sources = [s.source for s in self.seats]
        fates = (JUDGED, COST, END, SHORT, UNSUPPORTED)
        self.counts: dict[str, int] = dict.fromkeys(("offers", *fates), 0)
        # What sources had counted of this reply before it was stored and gone on with.
        self.counted_before: dict[str, int] = {}
        # For traces, None otherwise: offer, accepted, judged, the target's id instead;
        # drafter, drafted ids, what the target said.
        self.on_proposal: Callable[[Offer, int, int, int | None], None] | None = None
        self.on_drafts: Callable[[Drafting, Sequence[int], VerifyResult], None] | None = None
        self.complete: Callable[[], bool] = lambda: False
        """Whether nothing but the end may follow."""
        self._on_fault = on_fault
        self._open: Offer | None = None
        self._unheard: list[int] = []
        self._resting = False
        self._spent_s = 0.0

    @property
    def view(self) -> SessionView:
        """What sources see: made when it is looked at, since a session may not hold itself."""
        return SessionView(self)

    def source_counts(self) -> dict[str, int]:
        """The sources' own counters, equal names added up."""
        total: Counter[str] = Counter(self.counted_before)
        for source in self._sources:
            with recorded("", "counts", []):  # what cannot be counted is not worth a fault
                counts = getattr(source, "counts", None) or {}
                total.update({str(k): n for k, n in counts.items() if type(n) is int})
        return dict(total)

    @staticmethod
    def _sane(seat: SourceState, on_fault: Callable[[Fault], None]) -> bool:
        needed = ("propose", "observe", "resolved")
        try:
            missing = [n for n in needed if not callable(getattr(seat.source, n, None))]
            near = getattr(seat.source, "near", None)
        except BaseException as error:  # noqa: BLE001 - a plugin may raise anything
            wrong = charge(error)
        else:
            wrong = f"its source has no {missing[0]}()" if missing else ""
            seat.near = near if callable(near) else None
        if wrong:
            on_fault(Fault(seat.plugin, "proposal_sources", wrong))
        return not wrong

    # --- tokens -----------------------------------------------------------------

    def add(self, ids: Sequence[int]) -> None:
        """Tokens entered: the view moves, the sources are told.  None did: nobody hears of it."""
        self.tokens.extend(ids)
        self.budget -= len(ids)
        self._unheard += ids
        if not self._resting:
            self._hear()

    def _hear(self) -> None:
        """Tell the sources what they have not heard of."""
        entered = tuple(self._unheard)  # a source may keep or change what it is handed
        self._unheard.clear()
        self._resting = False
        for seat in list(self.seats) if entered else ():
            started = time.perf_counter()
            try:
                seat.source.observe(entered)
            except BaseException as error:  # noqa: BLE001 - a plugin may raise anything
                self._quarantine(seat, "observe", error)
            self._charge_time(seat, "observe", started)

    # --- offers -----------------------------------------------------------------

    def ask(self) -> Offer | None:
        """The first offer in priority order; the previous one was settled or followed.

        What is left of an offer whose first ids came true stands until its source, or one before
        it, offers anew: a source may offer a span only once.
        """
        self._hear()
        for seat in list(self.seats):
            left = self._open
            proposal = self._propose(seat)
            if proposal is None:
                if left is not None and left.seat is seat and seat in self.seats:
                    return left
                continue
            self.counts["offers"] += 1
            offer = self._clamp(seat, proposal)
            if left is not None and (offer is not None or left.seat is seat):
                self._close(left)
                self._open = None
            if offer is not None:
                self._open = offer
                return offer
            self._tell(seat, proposal, 0)
        self._close(self._open)  # its source has left the table
        self._open = None
        return None

    def near(self) -> bool:
        """Whether some source expects to offer after the next token."""
        for seat in list(self.seats):
            if seat.near is not None:
                started = time.perf_counter()
                try:
                    if seat.near():
                        return True
                except BaseException as error:  # noqa: BLE001
                    self._quarantine(seat, "near", error)
                self._charge_time(seat, "near", started)
        return False

    def settle(self, accepted: int, judged: int, instead: int | None = None) -> None:
        """The outcome of the open offer: ``accepted`` ids entered, ``judged`` were decided.

        ``judged`` is ``accepted`` or one more (the first wrong one, where the target chose
        ``instead``).
        """
        offer, self._open = self._open, None
        if offer is not None:
            self._learn(offer, accepted, judged, instead)
            self._close(offer, accepted)

    def close(self) -> None:
        """Nothing more comes."""
        self._hear()
        self.settle(0, 0)

    @property
    def may_rest(self) -> bool:
        """Whether nobody is lost who has to be heard at every token: who asserts has."""
        return not any(seat.trusted for seat in self.seats)

    def rest(self) -> None:
        """Let the sources be until they are asked again: they hear then of all that entered."""
        self.settle(0, 0)
        self._resting = True

    def spent(self) -> float:
        """Seconds that the sources took since this was asked last."""
        spent, self._spent_s = self._spent_s, 0.0
        return spent

    def follow(self, tokens: Sequence[int]) -> None:
        """The target chose ``tokens`` without a window: the open offer is held against them.

        A right one stays open with the ids that are left.
        """
        offer = self._open
        if offer is None:
            return
        pairs = enumerate(zip(offer.ids, tokens, strict=False))
        compared = min(len(offer.ids), len(tokens))
        right = next((at for at, (ours, theirs) in pairs if ours != theirs), compared)
        if right < compared:
            self.settle(right, right + 1, tokens[right])
        elif right == len(offer.ids):
            self.settle(right, right)
        else:
            self._learn(offer, right, right, None)
            self._open = evolve(offer, ids=offer.ids[right:], entered=offer.entered + right)

    def tally(self) -> dict[str, int]:
        """The counters, as if the request ended here."""
        fate = {} if self._open is None else {self._open.fate: self.counts[self._open.fate] + 1}
        return {**self.counts, **fate}

    def drop_streaks(self) -> None:
        """Nobody offered: what comes next has no record."""
        for seat in self.seats:
            seat.streak = 0

    # --- inside -------------------------------------------------------------------

    def _learn(self, offer: Offer, accepted: int, judged: int, instead: int | None) -> None:
        """Note what was decided of an offer."""
        seat = offer.seat
        if offer.policy is Policy.VERIFY:
            start = offer.evidence
            for i in range(judged):
                seat.acceptance.record(start + i, i < accepted)
            seat.streak = start + accepted if judged == accepted else 0
        if self.on_proposal is not None:
            self.on_proposal(offer, accepted, judged, instead)

    def _close(self, offer: Offer | None, accepted: int = 0) -> None:
        """Count what became of an offer, and tell its source; ``accepted``: more ids entered."""
        if offer is not None:
            self.counts[offer.fate] += 1
            self._tell(offer.seat, offer.proposal, offer.entered + accepted)

    def _propose(self, seat: SourceState) -> Proposal | None:
        started = time.perf_counter()
        try:
            proposal = seat.source.propose(self.view)
            if proposal is not None:
                self._check(proposal)
        except BaseException as error:  # noqa: BLE001
            self._quarantine(seat, "propose", error)
            return None
        return None if self._charge_time(seat, "propose", started) else proposal

    def _charge_time(self, seat: SourceState, where: str, started: float) -> bool:
        """Whether a call that ended now was one too slow."""
        took = time.perf_counter() - started
        self._spent_s += took
        if took <= self.rules.propose_budget_s:
            return False
        now, before = len(self.tokens), seat.slow_at
        seat.slow_at = now
        if before is None or now - before > SOON:
            return False
        limit = self.rules.propose_budget_s
        slow = f"took {took:.2f} s, and more than {limit:.2g} s twice within {SOON} tokens"
        self._quarantine(seat, where, TimeoutError(slow))
        return True

    def _check(self, proposal: object) -> None:
        """Raise for anything that is no proposal of legal ids."""
        if type(proposal) is not Proposal:
            message = f"answered {type(proposal).__name__}, not a Proposal"
            raise TypeError(message)
        for name, kind in FIELDS.items():
            value = getattr(proposal, name)
            if type(value) is not kind:
                message = f"{name} must be a {kind.__name__}, not {type(value).__name__}"
                raise TypeError(message)
        ids = proposal.ids[: self.rules.max_span]  # nobody looks at the rest
        if not ids:
            return
        if set(map(type, ids)) != {int}:
            message = "ids must be plain ints"
            raise TypeError(message)
        low, high = min(ids), max(ids)
        if low < 0 or high >= self.rules.vocab_size:
            wrong = low if low < 0 else high
            message = f"id {wrong} is outside the vocabulary of {self.rules.vocab_size}"
            raise ValueError(message)

    def _clamp(self, seat: SourceState, proposal: Proposal) -> Offer | None:
        """DESIGN's clamps in their order: EOS, delimiter, span and budget, at least two."""
        rules = self.rules
        ids = proposal.ids[: rules.max_span]
        policy = proposal.policy
        if policy is Policy.ASSERT and (not seat.trusted or rules.verify_only):
            policy = Policy.VERIFY
        if not rules.eos.isdisjoint(ids):
            ids = ids[: next(i for i, t in enumerate(ids) if t in rules.eos)]
        if proposal.delimiter_bound and rules.delimiters:
            cut = next((i for i, t in enumerate(ids) if t in rules.delimiters), None)
            ids = ids if cut is None else ids[: cut + 1]
        ids = ids[: self.budget]
        if len(ids) < 2:  # noqa: PLR2004
            self.counts[SHORT] += 1
            return None
        if proposal.delimiter_bound and policy is Policy.ASSERT and len(ids) < len(proposal.ids):
            policy = Policy.ASSERT if ids[-1] in rules.delimiters else Policy.VERIFY
        if policy is Policy.VERIFY and not (rules.verify_supported and rules.verify_pays):
            self.counts[COST if rules.verify_supported else UNSUPPORTED] += 1
            return None
        return Offer(seat, proposal, ids, policy)

    def _tell(self, seat: SourceState, proposal: Proposal, accepted: int) -> None:
        started = time.perf_counter()
        try:
            seat.source.resolved(proposal, accepted)
        except BaseException as error:  # noqa: BLE001
            self._quarantine(seat, "resolved", error)
        self._charge_time(seat, "resolved", started)

    def _quarantine(self, seat: SourceState, where: str, error: BaseException) -> None:
        """Remove a source for the rest of the request."""
        fault = Fault(seat.plugin, where, charge(error))
        if seat in self.seats:
            self.seats.remove(seat)
            self._on_fault(fault)
            if not self.rules.leaves_out:
                raise parted(fault) from error
