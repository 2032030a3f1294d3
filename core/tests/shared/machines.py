"""Machines whose time is made up, and requests that the real decode loop runs on them.

A machine says what a forward of n ids, a draft and a call of the host cost.  It keeps two clocks:
what the engine reads, with the noise of its kind, and the same work without noise, by which a run
is held against plain decoding.  Loop, session, gate and drafter are the engine's own; the target
is a script.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import mlx.core as mx
from attrs import define, evolve, field, frozen

from mlxfill.contracts import Policy, Proposal
from mlxfill.decode.loop import DecodeLoop
from mlxfill.decode.sequence import Sequence as DecodedSequence
from mlxfill.forward.runner import VerifyResult, Window
from mlxfill.policy.acceptance import AcceptanceStats
from mlxfill.policy.cost import CostCurve
from mlxfill.policy.drafter import Drafter
from mlxfill.policy.plan import Gate
from mlxfill.proposals.drafting import Drafting
from mlxfill.proposals.session import Rules, Session, SourceState
from mlxfill.sampling import Chooser, Sampling
from mlxfill_testing import Script, ScriptedDrafter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlxfill.policy.budget import SpeculationBudget

VOCABULARY = 64
FAR = 1 << 20
OPENBLAS = {1: 1.0, 2: 1.1, 3: 1.25, 4: 1.3, 8: 1.5, 16: 1.9, 32: 2.9}
"""Costs of windows as one CPU has them, in steps."""
LINEAR = {1: 1.0, FAR: float(FAR)}
FLAT = {1: 1.0, 32: 1.1}
DRIFTED = 1.5
"""Replies after which a machine that drifts has become another one."""
NEAR_LINEAR = {1: 1.0, 2: 1.78, 4: 3.56, 8: 6.67, 16: 14.4, 32: 28.5}


@frozen(kw_only=True)
class Kind:
    """What a machine is like.

    ``step``: seconds of a plain step on the device; ``costs``: of windows, in steps; ``believed``:
    what was measured at the start, None: the truth; ``host``: seconds that the host needs to build
    a forward; ``jitter``: of a log-normal noise; ``stalls``: how often an operation takes ten times
    as long; ``drift``: how many times slower it is from the middle of the second reply on;
    ``rewind``: of a window whose drafts are refused, as a share of it.
    """

    name: str
    step: float = 0.01
    costs: dict[int, float] = field(factory=lambda: dict(OPENBLAS))
    believed: dict[int, float] | None = None
    host: float = 0.0002
    jitter: float = 0.02
    stalls: float = 0.0
    drift: float = 1.0
    rewind: float = 0.0


KINDS = {
    kind.name: kind
    for kind in (
        Kind(name="fast quiet", step=0.002, jitter=0.005),
        Kind(name="slow", step=0.1, costs=NEAR_LINEAR),
        Kind(name="noisy", jitter=0.3, stalls=0.04),
        Kind(name="growing slower", drift=2.0),
        Kind(name="growing quicker", drift=0.5),
        Kind(name="busy, then quiet", believed={1: 1.0, 8: 9.0, 32: 40.0}),
        Kind(name="quiet, then busy", costs=NEAR_LINEAR, believed=FLAT),
        Kind(name="n ids cost n", costs=LINEAR),
        Kind(name="like a GPU", costs=FLAT, step=0.02),
        Kind(name="dear rewinds", rewind=0.5),
        Kind(name="bound by the host", step=0.0006, host=0.0005),
    )
}


@define
class Timeline:
    """Host and device, the device behind the host."""

    host: float = 0.0
    device: float = 0.0

    def dispatch(self, seconds: float) -> float:
        """Let the device work; when it will be done."""
        self.device = max(self.device, self.host) + seconds
        return self.device

    def wait(self, until: float) -> None:
        """The host waits."""
        self.host = max(self.host, until)


class Machine:
    """One machine of a kind.  ``progress``: the part of the reply that is written."""

    def __init__(self, kind: Kind, seed: int) -> None:
        """``seed``: of its noise."""
        self.kind, self.random, self.progress = kind, random.Random(seed), 0.0
        self.replies = 0
        self.seen, self.true = Timeline(), Timeline()
        self.curve = CostCurve(dict(kind.costs))

    def now(self) -> float:
        """What the engine reads in the place of ``time.perf_counter``."""
        return self.seen.host

    def forward(self, ids: int) -> tuple[float, float]:
        """Dispatch a forward; when it is done on either clock."""
        self.spend(self.kind.host)
        return self.compute(self.kind.step * self.curve.cost(ids))

    def compute(self, seconds: float) -> tuple[float, float]:
        """Work on the device."""
        return self.seen.dispatch(self._noisy(seconds)), self.true.dispatch(self._at(seconds))

    def spend(self, seconds: float) -> None:
        """Work of the host."""
        self.seen.host += self._noisy(seconds)
        self.true.host += self._at(seconds)

    def wait(self, until: tuple[float, float]) -> None:
        """The host waits for the device."""
        self.seen.wait(until[0])
        self.true.wait(until[1])

    def _at(self, seconds: float) -> float:
        drifted = self.replies + self.progress > DRIFTED
        return seconds * (self.kind.drift if drifted else 1.0)

    def _noisy(self, seconds: float) -> float:
        kind = self.kind
        stalled = 10.0 if self.random.random() < kind.stalls else 1.0
        return self._at(seconds) * self.random.lognormvariate(0.0, kind.jitter) * stalled


@contextmanager
def clock_of(machine: Machine) -> Iterator[None]:
    """The engine reads the machine's clock."""
    real, time.perf_counter = time.perf_counter, machine.now
    try:
        yield
    finally:
        time.perf_counter = real


# --- the target ---------------------------------------------------------------------------------


@frozen
class Flying:
    """A token that is being computed."""

    machine: Machine
    token: int
    done: tuple[float, float]

    def tolist(self) -> list[int]:
        """Wait for it."""
        self.machine.wait(self.done)
        return [self.token]


class Target:
    """Says a script; stands in the place of a ``TargetRunner``."""

    def __init__(self, machine: Machine, truth: Sequence[int], held: int) -> None:
        """``held``: tokens of ``truth`` in the caches."""
        self.machine, self.truth, self.held = machine, truth, held
        self.prompt = held + 1
        self.forwards, self.build_s = 0, machine.kind.host
        self.last_aux_states, self.phases, self.shows_asserted = None, None, False
        self.one_by_one = False

    def room(self) -> None:
        """No limit."""

    def step(
        self, _pending: object, histories: Sequence[Sequence[int]], unread: int
    ) -> tuple[Flying, list[None]]:
        """One id."""
        position = len(histories[0]) + unread
        self._at(position)
        self.held += 1
        self.forwards += 1
        return Flying(self.machine, self.truth[position], self.machine.forward(1)), [None]

    def verify(
        self, windows: Sequence[Window], histories: Sequence[Sequence[int]]
    ) -> list[VerifyResult]:
        """A window."""
        (window,), (tokens,) = windows, histories
        drafts: Any = window.drafts
        self._at(len(tokens))
        said = self.truth[len(tokens) :][: len(drafts) + 1]
        pairs = zip(said, drafts, strict=False)
        accepted = next((i for i, (a, b) in enumerate(pairs) if a != b), len(drafts))
        self.machine.wait(self.machine.forward(window.size))
        if accepted < len(drafts):
            kind = self.machine.kind
            self.machine.compute(kind.rewind * kind.step * self.machine.curve.cost(window.size))
        self.held += len(window.known) + accepted
        self.forwards += 1
        rows: Any = [None] * (len(drafts) + 1)
        return [VerifyResult(list(said[: accepted + 1]), accepted, rows, list(drafts))]

    def _at(self, position: int) -> None:
        written = position - self.prompt
        self.machine.progress = written / max(len(self.truth) - 40 - self.prompt, 1)


# --- those who guess ----------------------------------------------------------------------------


@frozen(kw_only=True)
class Arm:
    """Who guesses.

    ``right``: how often each guess is; ``draft``: cost of a draft in steps, None: it is a source;
    ``told``: what it costs to tell a drafter of a token, in steps; ``asked``: seconds of the host
    that a source takes for an answer; ``depth``: most ids; ``offers``: how often a source offers;
    ``once``: it does so only at some places, once each.
    """

    name: str
    right: float
    draft: float | None = None
    told: float = 0.0
    asked: float = 0.0
    depth: int = 7
    offers: float = 1.0
    once: bool = False


DRAFT = {"draft": 0.2, "told": 0.02, "depth": 4}
ARMS = {
    arm.name: arm
    for arm in (
        Arm(name="drafter, never right", right=0.0, **DRAFT),  # type: ignore[arg-type]
        Arm(name="drafter, 30 % right", right=0.3, **DRAFT),  # type: ignore[arg-type]
        Arm(name="drafter, 80 % right", right=0.8, **DRAFT),  # type: ignore[arg-type]
        Arm(name="drafter, always right", right=1.0, **DRAFT),  # type: ignore[arg-type]
        Arm(name="dear drafter, never right", right=0.0, draft=1.5, told=0.05, depth=4),
        Arm(name="dear drafter, 80 % right", right=0.8, draft=0.9, told=0.05, depth=4),
        Arm(name="head, never right", right=0.0, draft=0.06, told=0.02, depth=2),
        Arm(name="head, 80 % right", right=0.8, draft=0.06, told=0.02, depth=2),
        Arm(name="source, never right", right=0.0),
        Arm(name="source, 30 % right", right=0.3),
        Arm(name="source, always right", right=1.0),
        Arm(name="source, offers once", right=1.0, once=True, depth=16),
        Arm(name="slow source, never right", right=0.0, asked=0.0001),
    )
}


class Rows:
    """A scripted row that takes time."""

    def __init__(self, rows: Any, machine: Machine, arm: Arm) -> None:
        self._rows, self._machine, self._arm = rows, machine, arm

    def __getattr__(self, name: str) -> Any:
        return getattr(self._rows, name)

    def draft(self, pending: Sequence[int], depth: int, positions: Sequence[int]) -> Any:
        """Drafts, read by the host."""
        kind = self._machine.kind
        for _ in range(depth):
            self._machine.spend(kind.host / 2)
            self._machine.compute(kind.step * (self._arm.draft or 0.0))
        self._machine.wait((self._machine.seen.device, self._machine.true.device))
        start, wanted = positions[0], depth
        self._rows.rows[0].pending = pending[0]
        return [self._rows.provider.script.guess(start, wanted)]

    def prefill(self, tokens: mx.array, context: Any = None) -> None:
        """Tell of the prompt."""
        self._tell(tokens.size)
        self._rows.prefill(tokens, context)

    def consume(self, tokens: mx.array, lengths: Sequence[int], context: Any = None) -> None:
        """Tell of others' tokens."""
        self._tell(tokens.size)
        self._rows.consume(tokens, lengths, context)

    def _tell(self, count: int) -> None:
        self._machine.compute(self._machine.kind.step * self._arm.told * count)
        self._machine.wait((self._machine.seen.device, self._machine.true.device))


class Source:
    """Offers what its script says."""

    def __init__(self, machine: Machine, arm: Arm, script: Script) -> None:
        self._machine, self._arm, self._script = machine, arm, script
        self._said: set[int] = set()

    def observe(self, ids: Sequence[int]) -> None:
        """Nothing to note."""

    def propose(self, view: Any) -> Proposal | None:
        """A span, or nothing."""
        self._machine.spend(self._arm.asked)
        place = view.length // 32
        if self._arm.once and place in self._said:
            return None
        self._said.add(place)
        if self._script.random.random() >= self._arm.offers:
            return None
        ids = self._script.guess(view.length, self._arm.depth + 1)
        return Proposal(tuple(ids), Policy.VERIFY, "source")

    def resolved(self, proposal: Proposal, accepted: int) -> None:
        """Nothing to learn."""


# --- an engine ----------------------------------------------------------------------------------


class Bench:
    """What an engine keeps from request to request, on one machine with one who guesses."""

    def __init__(
        self, kind: Kind, arm: Arm | None, seed: int = 0, *, gate: bool = True, depth: int = 0
    ) -> None:
        """``gate`` off and ``depth``: always so deep, whatever it costs."""
        arm = evolve(arm, depth=depth) if arm is not None and depth else arm
        self.machine, self.arm, self.seed, self.gated = Machine(kind, seed), arm, seed, gate
        believed = kind.costs if kind.believed is None else kind.believed
        self.curve = CostCurve(dict(believed), rewind=kind.rewind)
        self.budget: SpeculationBudget = Gate(self.curve).budget
        self.acceptance = AcceptanceStats()
        self.drafter: Drafter | None = None
        self.rounds = 0
        if arm is not None and arm.draft is not None:
            provider = ScriptedDrafter(script=Script([], 0.0), weights_bytes=1)
            self.drafter = Drafter("arm", provider.kind(), provider)
            self.drafter.cost = arm.draft

    def request(self, count: int, prompt: int = 16) -> float:
        """Answer by ``count`` tokens; the seconds that it took, without noise."""
        draw = random.Random(7 + self.seed)
        truth = [draw.randrange(VOCABULARY) for _ in range(prompt + count + 40)]
        machine, arm = self.machine, self.arm
        machine.progress = 0.0
        target: Any = Target(machine, truth, prompt)
        seats, drafting = [], None
        faults: list[Any] = []
        script = Script(truth, arm.right if arm else 0.0, 1000 * self.seed + machine.replies)
        if arm is not None and self.drafter is None:
            source: Any = Source(machine, arm, script)
            seats = [SourceState("arm", source, trusted=False, acceptance=self.acceptance)]
        elif arm is not None and self.drafter is not None:
            provider = ScriptedDrafter(script=script, weights_bytes=1)
            sampling = Chooser(Sampling(seed=0))
            rows: Any = Rows(provider.open(target, [sampling], [None]), machine, arm)
            drafting = Drafting(
                self.drafter,
                rows,
                sampling,
                cap=arm.depth,
                vocab_size=VOCABULARY,
                stream=mx.default_stream(mx.cpu),
                on_fault=faults.append,
            )
            drafting.prefilled(truth[:prompt], None)
        rules = Rules(
            vocab_size=VOCABULARY,
            eos=frozenset(),
            delimiters=frozenset(),
            max_span=64,
            verify_supported=True,
        )
        session = Session(truth[: prompt + 1], count, rules, seats, faults.append)
        gate = Gate(self.curve, enabled=self.gated, budget=self.budget)
        sequence = DecodedSequence(
            target,
            session,
            gate,
            drafting,
            want_logprobs=False,
            append_chunk=0,
            cancelled=lambda: False,
        )
        started = machine.true.host
        with clock_of(machine):
            loop = DecodeLoop(target, mx.default_stream(mx.cpu), [sequence])
            while sequence.ending is None:
                loop.round()
        assert session.tokens == truth[: prompt + 1 + count]
        hard = [fault for fault in faults if "by chance" not in fault.message]
        assert not hard, hard
        if drafting is not None:
            drafting.close(count)
        self.rounds += sequence.counters.windows
        machine.replies, machine.progress = machine.replies + 1, 0.0
        machine.wait((machine.seen.device, machine.true.device))
        return machine.true.host - started


def ratios(kind: Kind, arm: Arm, seed: int, counts: Sequence[int], **options: Any) -> list[float]:
    """Plain time by the arm's time, of one request after the other in one engine each."""
    ours, plain = Bench(kind, arm, seed, **options), Bench(kind, None, seed)
    return [plain.request(count) / ours.request(count) for count in counts]


def best_depth(kind: Kind, arm: Arm, seed: int, count: int) -> float:
    """The ratio of the best depth that never changes, 0 included."""
    return max(
        1.0,
        *(
            ratios(kind, arm, seed, [count], gate=False, depth=d)[0]
            for d in range(1, arm.depth + 1)
        ),
    )
