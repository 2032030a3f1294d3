"""The drafter that an engine has mounted, and what was learnt about it over all requests."""

from __future__ import annotations

import math
import time
from collections import deque
from typing import TYPE_CHECKING, Any

import mlx.core as mx
from attrs import define, field

from mlxfill.model.reading import weight_bytes
from mlxfill.policy.acceptance import AcceptanceStats, bucket_of
from mlxfill.policy.budget import RetrySchedule
from mlxfill.policy.constants import BUCKETS, DECAY, MARGIN, NEWEST
from mlxfill.policy.cost import quiet
from mlxfill.sampling import Chooser, Sampling

if TYPE_CHECKING:
    from collections.abc import Callable

    from mlxfill.contracts import DraftKind, DraftProvider, DraftRows
    from mlxfill.model.reading import Stream
    from mlxfill.model.target import Target
    from mlxfill.policy.cost import CostCurve

    Clock = Callable[[], float]

CONTEXT = 8
LEAST_RUNS, MOST_RUNS, BUDGET_S = 2, 16, 0.2
HOPE, CREDIT = 0.9, 6.0
"""First estimate of a trained drafter's rate, and how many trials it counts for."""
POOLED = 4.0
"""How many trials of a position the rate of all positions counts for."""
MUCH_QUICKER = 1.5
"""Where two rounds are so many times quicker than those before, plain steps are timed at once."""
FIRST_LOOK, LAST_LOOK = 32, 64
"""Rounds after which plain steps are timed again; doubled each time that drafting went on."""
BELIEVED = 2
"""Timed rounds from which on they, and no longer the first measurement, say what drafts cost."""
FIRST_REPLY, REPLIES = 128, 8
"""Tokens of a reply before any has ended, and how many of the last ones count."""
MANY = 8
"""Tokens told at once from which on the time says what one of them costs."""
READ_TOGETHER = 8
"""How many tokens that are told together cost what a draft does, before the clock tells."""
LONG_WINDOW = 32
"""Ids of a window that costs, per id, no less than a prompt does."""
TRIED = 24
"""First drafts after which a drafter must have been right more often than by chance."""
MOST_DRAFTS = 1024
"""Drafts of a round, whatever is asked for: each place has its counters."""


@define
class DraftAcceptance(AcceptanceStats):
    """How likely each draft of a trained drafter is right.

    Someone trained it to be right and someone mounted it, so it begins with some credit.  What
    is known of all positions speaks for those that were hardly tried: drafts of one chain are
    right or wrong for the same reasons, and depths that were never tried must not look bad.
    """

    trials: list[float] = field(factory=lambda: [CREDIT] + [0.0] * (len(BUCKETS) - 1))
    hits: list[float] = field(factory=lambda: [CREDIT * HOPE] + [0.0] * (len(BUCKETS) - 1))

    def rate(self, evidence: int) -> float:
        """Estimated probability that the draft after ``evidence`` right ones is right."""
        at = bucket_of(evidence)
        overall = sum(self.hits) / sum(self.trials)
        return (self.hits[at] + POOLED * overall) / (self.trials[at] + POOLED)

    def record(self, evidence: int, hit: bool) -> None:
        """One judged draft.  With each chain all positions fade, those not reached as well."""
        if evidence == 0:
            self.trials = [DECAY * each for each in self.trials]
            self.hits = [DECAY * each for each in self.hits]
        at = bucket_of(evidence)
        self.trials[at] += 1.0
        self.hits[at] += hit


@define
class Drafter:
    """A provider, the plugin and kind that it came from, and its record.

    ``cost``: of one draft, in plain steps, as timed at first; None until then.  ``step_ms``: a
    plain step, 0 while nobody timed one.  ``promise``: tokens per plain step of the rounds that
    were last thought of, what it costs to tell of the prompt left aside.  ``fund``: steps that it
    may cost beyond the budget to tell it what it missed: the first time whatever that takes, since
    someone mounted it to draft, then what its rounds have won.  ``owed``: what telling cost beyond
    that.  ``rounds``: since plain steps were timed; after ``look_after`` of them they are timed
    again.  ``judged`` and ``right`` count first drafts of rounds until there are enough to tell it
    from chance.
    """

    plugin: str
    kind: DraftKind
    provider: DraftProvider
    acceptance: AcceptanceStats = field()
    cost: float | None = None
    step_ms: float = 0.0
    promise: float = math.inf
    fund: float = field()
    owed: float = 0.0
    rounds: int = FIRST_LOOK
    look_after: int = FIRST_LOOK
    judged: int = 0
    right: int = 0
    _replies: deque[int] = field(factory=lambda: deque([FIRST_REPLY], REPLIES), repr=False)
    _telling_ms: deque[float] = field(factory=lambda: deque(maxlen=NEWEST), repr=False)
    _rounds_ms: dict[int, deque[float]] = field(factory=dict, repr=False)
    _quicker: bool = False
    _on_trial: bool = False
    _fresh: set[int] = field(factory=set, repr=False)

    @fund.default
    def _trust(self) -> float:
        return math.inf if self.trained else 0.0

    @acceptance.default
    def _prior(self) -> AcceptanceStats:
        return DraftAcceptance() if self.trained else AcceptanceStats()

    @property
    def trained(self) -> bool:
        """Whether it has weights: what one request showed then holds for the next."""
        return self.provider.weights_bytes > 0

    def open(self) -> None:
        """A request begins.  A drafter without weights lives on its text: a new one, a new try."""
        self.rounds = self.look_after  # the machine may have become another one
        if not self.trained:
            self.acceptance.retry = RetrySchedule()

    def worth(self, curve: CostCurve) -> float:
        """How many tokens of a prompt may be read again for the sake of its drafts in one reply."""
        saved = self._to_come * (1.0 - 1.0 / self.promise)
        return saved * LONG_WINDOW / curve.cost(LONG_WINDOW)

    @property
    def _to_come(self) -> float:
        """Tokens that a reply may have: as many as the last ones had."""
        return sum(self._replies) / len(self._replies)

    def pays(self, untold: int, budget: float = math.inf) -> bool:
        """Whether to tell it of ``untold`` tokens for the sake of at most ``budget`` to come.

        Over n tokens to come, rounds at r tokens a plain step save ``n - n / r`` steps.  Nobody
        knows n: it is taken for as long as the last replies were.
        """
        share = self.share(untold, budget)
        return self.promise * (1.0 - share) > MARGIN

    def affords(self, untold: int) -> bool:
        """Whether its fund pays for telling it of ``untold`` tokens."""
        return untold * self.telling <= self.fund

    def share(self, untold: int, budget: float = math.inf) -> float:
        """What it costs to tell it of ``untold`` tokens, in plain steps for each token to come."""
        return untold * self.telling / max(min(self._to_come, budget), 1.0)

    @property
    def telling(self) -> float:
        """What it costs to tell it of one token that others chose, in plain steps.

        With taps that includes the target's part: they are computed when they are first needed.
        """
        guess = (self.cost or 0.0) / READ_TOGETHER
        if not self._telling_ms or not self.step_ms:
            return guess
        steps = quiet(self._telling_ms) / self.step_ms
        return (
            steps if len(self._telling_ms) >= BELIEVED else min(steps, guess)
        )  # kernels are built

    def told(self, tokens: int, ms: float) -> None:
        """It was told of ``tokens`` at once, which took ``ms``; a few say nothing of many."""
        if tokens >= MANY:
            self._telling_ms.append(ms / tokens)
        steps = ms / self.step_ms if self.step_ms else 0.0
        if self._on_trial:
            self.owed += steps
            return
        self.owed += max(steps - self.fund, 0.0)
        self.fund = 0.0 if math.isinf(self.fund) else max(self.fund - steps, 0.0)

    def owes(self) -> float:
        """Take what telling cost beyond its fund."""
        owed, self.owed = self.owed, 0.0
        return owed

    def replied(self, tokens: int) -> None:
        """A reply of so many tokens ended."""
        self._replies.append(tokens)

    @property
    def costed(self) -> bool:
        """Whether its own rounds say what it costs."""
        return any(len(times) >= BELIEVED for times in self._rounds_ms.values())

    @property
    def proven(self) -> int:
        """The deepest round that was timed; 0: nobody knows what its rounds cost."""
        return max((depth for depth, times in self._rounds_ms.items() if times), default=0)

    def draft_cost(self, depth: int, curve: CostCurve) -> float:
        """Cost of each of ``depth`` drafts in plain steps, whatever else a round costs included.

        A depth that was hardly tried costs what the nearest one does.  Before any was, a round is
        not believed to cost more steps than it has tokens.
        """
        known = [d for d, times in self._rounds_ms.items() if len(times) >= BELIEVED]
        if not known or not curve.quiet_step_ms:
            return min(self.cost or 0.0, (1 + depth - curve.cost(1 + depth)) / depth)
        tried = min(known, key=lambda each: abs(each - depth))
        # Where times contradict each other, a round costs at least the step that it holds.
        steps = max(quiet(self._rounds_ms[tried]) / curve.quiet_step_ms, 1.0)
        return (steps - curve.cost(1 + tried)) / tried

    def timed(self, depth: int, ms: float) -> None:
        """A round of ``depth`` drafts took ``ms``; quick are those with nothing to take back."""
        known = self._rounds_ms.setdefault(depth, deque(maxlen=NEWEST))
        quicker = bool(known) and ms * MUCH_QUICKER < quiet(known)
        if quicker and self._quicker:  # so may plain steps be: see what they cost
            self.rounds = self.look_after
        self._quicker = quicker
        known.append(ms)
        self._fresh.add(depth)

    def looks(self) -> bool:
        """Whether plain steps are to be timed before it drafts on; asked once a round.

        What was learnt of depths that were not used since the last time is forgotten then.
        """
        if self.rounds < self.look_after:
            return False
        if self._rounds_ms:
            self.look_after = min(2 * self.look_after, LAST_LOOK)
        self._rounds_ms = {d: ms for d, ms in self._rounds_ms.items() if d in self._fresh}
        self._fresh.clear()
        self.rounds = 0
        return True

    def rests(self, steps: int = 1) -> None:
        """So many plain steps went by."""
        self.acceptance.retry.idle_tokens += steps
        self.rounds = 0

    def drafts(self) -> None:
        """It drafts now.  After the longest rest what rounds cost is found out anew."""
        if self.acceptance.retry.late:
            self._rounds_ms.clear()
        self.acceptance.retry.begin()

    def tried(self) -> None:
        """It drafts although it does not promise to pay: the budget pays for all of that."""
        self._on_trial = True
        self.fund = self.fund if math.isfinite(self.fund) else 0.0

    def won(self, steps: float) -> None:
        """A round won, or lost, so many steps: it is tried again sooner, and may be told of more.

        One without weights may have found its text: then it goes on at once.
        """
        self._on_trial = False
        if steps > 0:
            self.acceptance.retry.paid()
            if not self.trained:
                self.acceptance.retry.retry_after = 0
        self.fund = max(self.fund + steps, 0.0)

    def first_draft(self, hit: bool, vocab_size: int) -> str:
        """Note a round's first draft; answers a warning once, when all were no better than chance.

        A wrong head, or one whose weights were read at the wrong scale, drafts like that.
        """
        if not self.trained or self.judged == TRIED:
            return ""
        self.judged += 1
        self.right += hit
        if self.judged < TRIED or self.right * vocab_size > self.judged:
            return ""
        return (
            f"drafter {self.provider.id!r} was right in {self.right} of {self.judged} first drafts,"
            " no more than by chance: is it made for this model?"
        )


def most_drafts(provider: DraftProvider, *asked: int | None) -> int:
    """Most ids of a round: the first number that is given, or what the drafter is made for."""
    wanted = next((n for n in asked if n is not None), provider.default_depth)
    return min(wanted, MOST_DRAFTS)


def measured_cost(
    target: Target,
    provider: DraftProvider,
    depth: int,
    stream: Stream,
    clock: Clock | None = None,
) -> float:
    """Cost of one draft in plain steps: a chain of ``depth`` drafts against a step, timed now.

    The better of a few runs on a short context.  Raises what the provider raises.
    """
    rows = provider.open(target, Chooser(Sampling(seed=0)), [None])
    try:
        with mx.stream(stream):
            return _measured(target, rows, depth, clock or time.perf_counter)
    finally:
        rows.close()


def estimated_cost(  # noqa: PLR0913, PLR0917 - what is timed, and how
    target: Target,
    provider: DraftProvider,
    depth: int,
    stream: Stream,
    curve: CostCurve | None,
    clock: Clock | None = None,
) -> float:
    """Cost of one draft in plain steps: measured where it decides whether to draft.

    ``curve`` None: nothing is gated.  A drafter that cannot be timed costs what its weights
    weigh against the target's.
    """
    share = min(max(provider.weights_bytes / max(weight_bytes(target.model), 1), 0.0), 1.0)
    could_pay = curve is not None and curve.cost(1 + depth) < 1 + depth
    if not could_pay or not provider.weights_bytes:
        return share
    try:
        return measured_cost(target, provider, depth, stream, clock)
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - a plugin may raise anything; requests will tell
        return share


def _measured(target: Target, rows: DraftRows, depth: int, clock: Clock) -> float:
    ids = mx.arange(CONTEXT)[None] % target.vocab_size
    width = target.hidden_size * len(rows.tap_layers)
    taps = mx.zeros((1, CONTEXT, width), target.dtype) if width else None
    rows.prefill(ids, taps)
    cache = target.new_cache()
    mx.eval(target.forward(ids, cache), [c.state for c in cache])
    position = CONTEXT + 1  # of the first draft; each round below keeps its pending token only
    _timed_draft(rows, depth, position, taps, clock)  # the first of a kind also loads kernels
    _timed_step(target, cache, clock)
    steps: list[float] = []
    drafts: list[float] = []
    started = clock()
    while len(steps) < LEAST_RUNS or (len(steps) < MOST_RUNS and clock() - started < BUDGET_S):
        steps.append(_timed_step(target, cache, clock))
        position += 1
        drafts.append(_timed_draft(rows, depth, position, taps, clock))
    return min(drafts) / min(steps)


def _timed_step(target: Target, cache: list[Any], clock: Clock) -> float:
    started = clock()
    mx.eval(mx.argmax(target.forward(mx.ones((1, 1), mx.int32), cache), axis=-1))
    return clock() - started


def _timed_draft(
    rows: DraftRows, depth: int, position: int, taps: mx.array | None, clock: Clock
) -> float:
    """Seconds a draft of a chain that is refused."""
    started = clock()
    (draft,) = rows.draft([1], depth, [position])
    mx.eval(draft)
    seconds = clock() - started
    rows.commit([[1]], None if taps is None else taps[:, :1])
    return seconds / max(len(draft), 1)
