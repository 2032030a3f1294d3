"""The decode loop: plain decoding, fills and drafts, of one sequence or of several together.

Two states.  *Pipelined*: the step for token n + 1 is dispatched from the unread token n, then n
is read while it runs, as mlx-lm does; sources are asked meanwhile and lose nothing.
*Synchronous*: the newest tokens are known to the host, and go into a window together with what
sources or drafters offer.  A pipelined loop waits for the token in flight when an offer promises
enough to give up one overlap of host and device; it is pipelined again when nothing pays.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import mlx.core as mx

from mlxfill.decode.ledger import Ledger
from mlxfill.decode.windows import next_windows
from mlxfill.model.reading import ids as ids_of
from mlxfill.model.reading import row
from mlxfill.policy.plan import Outcome

if TYPE_CHECKING:
    from collections import abc

    from mlxfill.decode.sequence import Emitted, Sequence
    from mlxfill.forward.batch_runner import BatchRunner
    from mlxfill.forward.runner import TargetRunner, VerifyResult, Window
    from mlxfill.model.reading import Stream
    from mlxfill.model.target import Target
    from mlxfill.policy.cost import CostCurve

    Emissions = list[tuple[Sequence, list[Emitted]]]


class DecodeLoop:
    """Sequences that share forwards.  They join and leave between rounds.

    One has its caches to itself; those of several lie in the batch.  While the loop is ``settled``
    the caches hold every token of a sequence but its newest.  ``failures``: sequences whose
    processors or sampler raised; the others go on.
    """

    def __init__(self, target: Target, stream: Stream, sequences: abc.Sequence[Sequence]) -> None:
        """``sequences`` are settled; ``stream``: where the target computes."""
        self.sequences: list[Sequence] = []
        self.failures: dict[Sequence, Exception] = {}
        self._alone: TargetRunner = sequences[0].forwarder
        self._batch: BatchRunner | None = None
        self._target, self._stream = target, stream
        self._flight: tuple[mx.array, mx.array | abc.Sequence[mx.array]] | None = None
        self._waits = self._rewound = False
        self._ledger = Ledger()
        self.join(sequences)

    # --- who ------------------------------------------------------------------------------------

    @property
    def batched(self) -> bool:
        """Whether the caches lie in a batch."""
        return self._batch is not None

    @property
    def _runner(self) -> TargetRunner | BatchRunner:
        return self._batch or self._alone

    @property
    def settled(self) -> bool:
        """Whether sequences may join, rest, and go on elsewhere."""
        return self._flight is None and not any(s.backlog or s.first for s in self.sequences)

    def rested(self) -> None:
        """Somebody did something else since the last round."""
        self._ledger.rested()

    def join(self, sequences: abc.Sequence[Sequence]) -> None:
        """Settled sequences join; only between flights."""
        joining = sequences if self._batch else [*self.sequences, *sequences]
        self.sequences = [*self.sequences, *sequences]
        if len(self.sequences) > 1:
            from mlxfill.forward.batch_runner import BatchRunner

            self._batch = self._batch or BatchRunner(self._target, self._stream)
            self._batch.join([each.forwarder for each in joining])
        self.rested()

    def leave(self, sequences: abc.Sequence[Sequence], *, with_caches: bool = False) -> None:
        """Sequences leave, ``with_caches`` of as many tokens as their runners say."""
        gone = [at for at, each in enumerate(self.sequences) if each in sequences]
        self.sequences = [each for each in self.sequences if each not in sequences]
        if self._batch is None:
            self._flight = self._flight if self.sequences else None
            return
        self._batch.leave(gone, with_caches=gone if with_caches else ())
        if self._flight is not None and gone:
            count = len(gone) + len(self.sequences)
            stay = mx.array([at for at in range(count) if at not in gone])
            chosen, logprobs = self._flight
            rows = [logprobs[at] for at in range(count) if at not in gone]
            self._flight = (chosen[stay], rows) if self.sequences else None

    def unbatch(self) -> None:
        """The only one that is left, settled, has its caches to itself again."""
        (only,) = self.sequences
        self.leave([only], with_caches=True)
        self._alone, self._batch = only.forwarder, None
        self.join([only])

    # --- rounds ---------------------------------------------------------------------------------

    def round(self, *, pausing: bool = False) -> Emissions:
        """New tokens of each; ``pausing``: begin nothing that leads away from where it settles."""
        clock = self._ledger.clock
        clock.start()
        out = (self._step if self._flight else self._verify)(pausing=pausing)
        clock.ready()
        return out

    def _verify(self, *, pausing: bool) -> Emissions:
        """Ask everyone; a window of what that brings, or the first of some plain steps."""
        if ended := [each for each in self.sequences if each.heeds_cancel()]:
            return [(each, []) for each in ended]
        windows = next_windows(self.sequences, self._curve)
        if not pausing and self.settled and all(window.size == 1 for window in windows):
            self._dispatch(row([window.known[0] for window in windows]), unread=0)
            waits = [each.begin_steps() for each in self.sequences]
            self._waits = any(waits)
            return self._step(pausing=False, looked=True)
        histories = [_history(*pair) for pair in zip(self.sequences, windows, strict=True)]
        started = time.perf_counter()
        results = self._runner.verify(windows, histories)
        self._book(windows, results, (time.perf_counter() - started) * 1e3)
        out: Emissions = []
        for each, window, result in zip(self.sequences, windows, results, strict=True):
            if self._failed(each):
                continue
            if each.first is not None:
                out.append((each, self._begun(each, result.sampled[0], result.logprobs[0])))
            else:
                out.append((each, each.verified(window, result)))
        for group in {each.drafting.group for each in self.sequences if each.drafting is not None}:
            group.commit()
        if self._runner.phases is not None:
            self._runner.phases.end("commit")
        return out

    def _step(self, *, pausing: bool, looked: bool = False) -> Emissions:
        """Read the samples in flight, after dispatching the next step unless somebody waits."""
        assert self._flight is not None  # noqa: S101 - the caller made sure
        chosen, logprobs = self._flight
        if not (pausing or looked):
            self._look()
        self._flight = None
        if all(each.skips for each in self.sequences):
            for at, each in enumerate(self.sequences):
                each.dropped(logprobs[at])
            return self._verify(pausing=pausing)
        if not (pausing or self._waits) and all(each.overlaps for each in self.sequences):
            self._dispatch(chosen, unread=1)
        out = self._read(chosen, logprobs)
        if self._flight is None:
            self._ledger.interrupted()
            for each in self.sequences:
                each.end_steps()
        return out

    def _read(self, chosen: mx.array, logprobs: mx.array | abc.Sequence[mx.array]) -> Emissions:
        """Wait for the samples of a step: the tokens that enter."""
        started = time.perf_counter()
        tokens = ids_of(chosen)
        if any(each.asks for each in self.sequences):
            self._ledger.read(time.perf_counter() - started, self.sequences, self._curve)
        out: Emissions = []
        for at, each in enumerate(self.sequences):
            each.counters.in_flight -= 1
            if self._failed(each):
                continue
            if each.first is not None:
                out.append((each, self._begun(each, tokens[at], logprobs[at])))
            else:
                out.append((each, each.sampled(tokens[at], logprobs[at])))
        return out

    def _look(self) -> None:
        """With a step in flight, ask those who may have an answer; each must look."""
        looking = [each for each in self.sequences if each.looks]
        self._waits = False
        if looking:
            self._ledger.learn(self.sequences, self._curve, self._runner.build_s)
            waits = [each.look(self._ledger.asking) for each in looking]
            self._waits = any(waits)

    def _dispatch(self, pending: mx.array, *, unread: int) -> None:
        histories = [each.session.tokens for each in self.sequences]
        self._flight = self._runner.step(pending, histories, unread)
        for each in self.sequences:
            each.counters.in_flight += 1
            if each.first is None or unread:
                each.counters.steps += 1
                each.note_aux_states(each.forwarder.last_aux_states)

    def _begun(self, sequence: Sequence, sample: int, logprobs: mx.array) -> list[Emitted]:
        """The last token of the prompt was forwarded among others."""
        first, sequence.first = sequence.first, None
        assert first is not None  # noqa: S101 - the caller made sure
        try:
            return first(sample, logprobs)
        except Exception as error:  # noqa: BLE001 - a caller's callback may raise anything
            self.failures[sequence] = error
            return []

    def _failed(self, sequence: Sequence) -> bool:
        """Whether something that belongs to this sequence alone raised in a common forward."""
        if self._batch is None:
            return False
        error = self._batch.failures.pop(sequence.forwarder, None)
        if error is not None:
            self.failures[sequence] = error
        return error is not None

    # --- what it cost ---------------------------------------------------------------------------

    @property
    def _curve(self) -> CostCurve:
        """Costs for as many as there are now, from a request that speculates if there is one."""
        curves = [each.gate.curve for each in self.sequences]
        return max(curves, key=lambda curve: len(curve.points)).for_rows(len(curves))

    def _book(
        self, windows: abc.Sequence[Window], results: abc.Sequence[VerifyResult], took_ms: float
    ) -> None:
        """Book what the drafts of a window won or lost; learn what a window costs."""
        sequences, curve = self.sequences, self._curve
        size, drafting = max(window.size for window in windows), [s for s in sequences if s.drafts]
        outcomes = [
            Outcome(len(window.known), len(result.drafts), result.accepted)
            for window, result in zip(windows, results, strict=True)
        ]
        drafted = any(outcome.drafted for outcome in outcomes)
        if size > 1 and (self.batched or (drafted and not drafting)):
            curve.observe(size, took_ms)
        if not drafted:
            self._ledger.appended()
            return
        curve.windows += 1
        pairs = list(zip(sequences, outcomes, strict=True))
        costs = [each.draft_cost(curve) * outcome.drafted for each, outcome in pairs if each.drafts]
        proven = bool(drafting) and not self.batched and size - 1 <= drafting[0].proven
        bound = curve.cost(size) if proven else curve.bound(size)
        cost = sum(costs)
        won = self._ledger.verified(sequences, curve, outcomes, bound + cost, cost)
        rewound, self._rewound = self._rewound, any(o.accepted < o.drafted for o in outcomes)
        spent_s = 0.0 if self.batched else self._ledger.spent_s
        for each, outcome in pairs:
            share = won / len(costs) if each.drafts else won
            if outcome.drafted:
                each.won(share, outcome.drafted, spent_s, rewound=rewound)


def _history(sequence: Sequence, window: Window) -> abc.Sequence[int]:
    """All tokens up to the window's drafts: the session's own list where it can."""
    tokens = sequence.session.tokens
    return [*tokens[: sequence.forwarder.held], *window.known] if sequence.backlog else tokens
