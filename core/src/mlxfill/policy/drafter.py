"""What an engine learns about its drafter over all requests: what it costs, and whether it pays."""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING

from attrs import define, field

from mlxfill.policy.acceptance import AcceptanceStats
from mlxfill.policy.budget import RetrySchedule
from mlxfill.policy.constants import DECAY, MARGIN, NEWEST, REPLY, SIZES
from mlxfill.policy.cost import typical
from mlxfill.policy.plan import Candidate, Gate, Plan, best_plan

if TYPE_CHECKING:
    from mlxfill.contracts import DraftKind, DraftProvider
    from mlxfill.policy.cost import CostCurve

FIRST_DRAFTS = round(1 / (1 - DECAY))
"""First drafts after which a drafter must have been right more often than by chance."""
MOST_DRAFTS = 1024
"""Drafts of a round, whatever is asked for: each place has its counters."""


@define
class TimedRound:
    """A round of ``depth`` drafts took ``ms``; ``rewound``: a rewind was still under way."""

    depth: int
    ms: float
    rewound: bool


@define
class Drafter:
    """A provider, the plugin and kind that it came from, and its record.

    ``cost``: of one draft, in plain steps, as timed at first; None until then.  ``step_ms``: a
    plain step, 0 while nobody timed one.  ``expected_speedup``: of the rounds that were last
    planned, what it costs to tell of the prompt left aside.  ``fund``: steps that it may cost
    beyond the budget to tell it what it missed: the first time whatever that takes, since someone
    mounted it to draft, then what its rounds have won.  ``owed``: what telling cost beyond that.
    ``judged`` and ``right`` count first drafts of rounds until there are enough to tell it
    from chance.
    """

    plugin: str
    kind: DraftKind
    provider: DraftProvider
    acceptance: AcceptanceStats = field()
    cost: float | None = None
    step_ms: float = 0.0
    expected_speedup: float = math.inf
    fund: float = field()
    owed: float = 0.0
    judged: int = 0
    right: int = 0
    proven: int = 0
    _rounds: deque[TimedRound] = field(factory=lambda: deque(maxlen=NEWEST), repr=False)
    _catch_up: deque[float] = field(factory=lambda: deque(maxlen=NEWEST), repr=False)
    _replies: deque[int] = field(factory=lambda: deque([REPLY], NEWEST), repr=False)
    _exploring: bool = False
    _failed: bool = False

    @fund.default
    def _trust(self) -> float:
        return math.inf if self.trained else 0.0

    @acceptance.default
    def _prior(self) -> AcceptanceStats:
        return AcceptanceStats.trained() if self.trained else AcceptanceStats()

    @property
    def trained(self) -> bool:
        """Whether it has weights: what one request showed then holds for the next."""
        return self.provider.weights_bytes > 0

    @property
    def retry(self) -> RetrySchedule:
        """When it is tried although it does not pay."""
        return self.acceptance.retry

    def open(self) -> None:
        """A request begins.  A drafter without weights lives on its text: a new one, a new try."""
        if not self.trained:
            self.acceptance.retry = RetrySchedule()

    # --- plans --------------------------------------------------------------------------------

    def candidate(
        self, limit: int, curve: CostCurve, untold: int = 0, stall: float = 0.0
    ) -> Candidate:
        """A round of at most ``limit`` drafts of one row, ``untold`` tokens told before.

        Telling is timed in the steps of ``curve`` from here on.
        """
        self.step_ms = 0.0 if curve.fixed else curve.step_ms
        return Candidate(
            limit=limit,
            rate=self.acceptance.rate,
            lower_rate=self.acceptance.lower_rate,
            draft_cost=self.draft_cost(curve, stall),
            round_cost=stall,
            catch_up=max(untold * self.catch_up_bound - self.fund, 0.0),
            proven=self.proven,
        )

    def plan(self, gate: Gate, limit: int, untold: int, to_come: int) -> Plan:
        """How deep to draft now; when it is due it is explored although it does not pay."""
        plan = gate.plan(self.candidate(limit, gate.curve, untold, gate.stall))
        self.expected_speedup = plan.expected_speedup
        if not plan.depth or self._failed:  # a try that failed is followed by tries alone
            return self.exploration(gate, limit, untold)
        return plan if self.pays(untold, to_come) else Plan()

    def exploration(self, gate: Gate, limit: int, untold: int) -> Plan:
        """A try, where one is due and would pay if it were as good as was hoped.

        The same where nobody knows what its rounds cost: a curve that was measured on a busy
        machine shall not keep it out for good.
        """
        curve = gate.curve
        if not self.retry.due:
            return Plan()
        unknown = self.trained and not self.proven and not curve.fixed
        hoped = AcceptanceStats.trained().rate
        draft_cost, telling = self.draft_cost(curve, gate.stall), untold * self.catch_up_bound
        hopeful = Candidate(limit=limit, rate=hoped, draft_cost=draft_cost)
        if not (unknown or self.retry.stale or best_plan([hopeful], curve).depth):
            return Plan()
        tried = Candidate(limit=limit, draft_cost=draft_cost, catch_up=telling, proven=self.proven)
        plan = gate.exploration(tried, costs=not self.proven)
        if plan.depth:  # the budget pays for all of that
            self._exploring = True
            self.fund = self.fund if math.isfinite(self.fund) else 0.0
        return plan

    # --- what it costs ------------------------------------------------------------------------

    def draft_cost(self, curve: CostCurve, stall: float = 0.0) -> float:
        """Cost of each draft in plain steps, whatever else a round costs included, but ``stall``.

        What was measured at first is one opinion among those of the newest rounds.
        """
        first = self.cost or 0.0
        if not self._rounds or not curve.step_ms:
            # A round is not believed to cost more steps than it has tokens before one was tried.
            return min(first, 2 - curve.cost(2)) if self.trained and not curve.fixed else first
        return typical([first, *(self._overhead(each, curve, stall) for each in self._rounds)])

    @staticmethod
    def _overhead(timed: TimedRound, curve: CostCurve, stall: float) -> float:
        """What each draft of a round cost beyond the window."""
        # Where times contradict each other, a round costs at least the step that it holds.
        steps = max(timed.ms / curve.step_ms, 1.0)
        window = curve.cost(1 + timed.depth)
        return (steps - stall - window * (1.0 + curve.rewind * timed.rewound)) / timed.depth

    def timed(self, depth: int, ms: float, *, rewound: bool = False) -> None:
        """A round took so long, from the last token that was read on."""
        self._rounds.append(TimedRound(depth, ms, rewound))
        self.proven = max(self.proven, depth)

    def drafts(self) -> None:
        """It drafts now.  After the longest rest what rounds cost is found out anew."""
        if self.retry.stale:
            self._rounds.clear()
            self.proven = 0
        self.retry.begin()

    def won(self, steps: float) -> None:
        """A round won, or lost, so many steps: it is tried again sooner, and may be told of more.

        One without weights may have found its text: then it goes on at once.
        """
        self._failed, self._exploring = steps <= 0 and (self._exploring or self._failed), False
        if steps > 0:
            if self.trained:
                self.retry.paid()
            else:
                self.retry.paid(retry_after=0)
        self.fund = max(self.fund + steps, 0.0)

    # --- telling it what others chose -----------------------------------------------------------

    def pays(self, untold: int, to_come: float = math.inf) -> bool:
        """Whether to tell it of ``untold`` tokens for the sake of at most ``to_come``.

        Over n tokens to come, rounds at r tokens a plain step save ``n - n / r`` steps.  Nobody
        knows n: it is taken for as long as the last replies were.
        """
        return self.expected_speedup * (1.0 - self.catch_up_share(untold, to_come)) > MARGIN

    def affords(self, untold: int) -> bool:
        """Whether its fund pays for telling it of ``untold`` tokens."""
        return untold * self.catch_up_bound <= self.fund

    def catch_up_share(self, untold: int, to_come: float = math.inf) -> float:
        """Catch-up cost of ``untold`` tokens, in plain steps for each token to come."""
        return untold * self.catch_up_cost / max(min(self._reply, to_come), 1.0)

    @property
    def catch_up_cost(self) -> float:
        """What it costs to tell it of one token that others chose, in plain steps.

        With aux layers that includes the target's part, computed when it is first needed.
        Before it was timed, as many as the smallest calibrated window are told for a draft's cost.
        """
        return typical([(self.cost or 0.0) / SIZES[0], *self._catch_up])

    @property
    def catch_up_bound(self) -> float:
        """What it may cost: the most that was timed, but no more than to draft the token."""
        longest = max(self._catch_up, default=0.0)
        return max(self.catch_up_cost, min(longest, self.cost or 0.0))

    def told(self, tokens: int, ms: float) -> None:
        """It was told of ``tokens`` at once, which took ``ms``; a few say nothing of many."""
        steps = ms / self.step_ms if self.step_ms else 0.0
        if steps and tokens >= SIZES[0]:
            self._catch_up.append(steps / tokens)
        if self._exploring:
            self.owed += steps
            return
        self.owed += max(steps - self.fund, 0.0)
        self.fund = 0.0 if math.isinf(self.fund) else max(self.fund - steps, 0.0)

    def owes(self) -> float:
        """Take what telling cost beyond its fund."""
        owed, self.owed = self.owed, 0.0
        return owed

    def worth(self, curve: CostCurve) -> float:
        """How many tokens of a prompt may be read again for the sake of its drafts in one reply."""
        saved = self._reply * (1.0 - 1.0 / self.expected_speedup)
        longest = max(SIZES)  # costs, per id, no less than a prompt does
        return saved * longest / curve.cost(longest)

    @property
    def _reply(self) -> float:
        """Tokens that a reply may have: as many as the last ones had."""
        return sum(self._replies) / len(self._replies)

    def replied(self, tokens: int) -> None:
        """A reply of so many tokens ended."""
        self._replies.append(tokens)

    # --- whether it is any good -----------------------------------------------------------------

    def first_draft(self, hit: bool, vocab_size: int) -> str:
        """Note a round's first draft; answers a warning once, when all were no better than chance.

        A wrong head, or one whose weights were read at the wrong scale, drafts like that.
        """
        if not self.trained or self.judged == FIRST_DRAFTS:
            return ""
        self.judged += 1
        self.right += hit
        if self.judged < FIRST_DRAFTS or self.right * vocab_size > self.judged:
            return ""
        return (
            f"drafter {self.provider.id!r} was right in {self.right} of {self.judged} first drafts,"
            " no more than by chance: is it made for this model?"
        )


def most_drafts(provider: DraftProvider, *asked: int | None) -> int:
    """Most ids of a round: the first number that is given, or what the drafter is made for."""
    wanted = next((n for n in asked if n is not None), provider.default_depth)
    return min(wanted, MOST_DRAFTS)
