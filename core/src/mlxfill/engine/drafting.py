"""The drafter of one request: kept aligned with the session, quarantined if it lies."""

from __future__ import annotations

import time
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import mlx.core as mx

from mlxfill.contracts import Fault
from mlxfill.engine.counters import StepClock
from mlxfill.engine.drafter import LAST_REST
from mlxfill.engine.gate import NOTHING, Gate, Plan
from mlxfill.model.reading import row
from mlxfill.plugins.faults import charge

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mlxfill.contracts import DraftCheckpoint, DraftRows
    from mlxfill.engine.drafter import Drafter
    from mlxfill.model.reading import Stream

FLUSH = 64
"""Tokens after which a resting drafter that drafted in this request is told what happened."""
MOST_TAPS = 2048
"""Tokens whose taps are held for a drafter that may never need them, and most told at once."""
LAST_PAUSE = 7
"""Most tokens between two calls of a drafter that answers with no drafts."""
BETWEEN_PLANS = 4
"""Plain tokens between two questions whether to draft again."""
LOOK = 4
"""Plain steps of a look at what they cost: the first one's time says nothing."""
WORTH_A_TRY = 1.15
"""What perfect drafts must promise for a drafter at rest to be tried before its longest rest."""
HOPEFUL = 1.3
"""Tokens that a round must promise for its cost to be found out."""
_TALLY = ("drafted_by_position", "accepted_by_position", "acceptance_lengths")


class Drafting:
    """One row of a drafter.

    ``processed`` counts the session tokens that the drafter has taken in; at a round it equals
    what the target's caches hold, and the pending token follows.
    """

    def __init__(  # noqa: PLR0913
        self,
        drafter: Drafter,
        rows: DraftRows,
        *,
        cap: int,
        vocab_size: int,
        stream: Stream,
        on_fault: Callable[[Fault], None],
    ) -> None:
        """``cap``: most ids a round; ``stream``: where the target computes, so where drafts do."""
        self.drafter, self.rows, self.cap = drafter, rows, cap
        self.origin = drafter.kind.origin
        drafter.open()
        self.tap_layers = tuple(rows.tap_layers)
        self._full = rows.prefill_mode == "full"
        self.processed = 0
        self.alive = True
        self.drafted_by_position = [0] * cap
        self.accepted_by_position = [0] * cap
        self.acceptance_lengths: list[int] = []
        self._vocab_size = vocab_size
        self._stream = stream
        self._on_fault = on_fault
        self._taps: list[mx.array] = []
        self._prompt: list[int] = []
        self._noted = 0
        self._prompt_tokens: int | None = None
        self._in_use = False
        self._clock = StepClock()
        self._looking = 0
        self._again = False
        self._pause = self._idle = 0
        self._mute = False

    def check_taps(self, layers: int) -> None:
        """Sit the request out unless the target has the layers that are to be tapped."""
        wrong = next((i for i in self.tap_layers if i not in range(layers)), None)
        if wrong is not None:
            self.tap_layers = ()
            asked = f"wants taps of layer {wrong}; the target has layers 0 to {layers - 1}"
            self._fail("open", ValueError(asked))

    # --- what happened elsewhere ----------------------------------------------------

    def prefilled(self, tokens: Sequence[int], taps: mx.array | None) -> None:
        """A chunk of the prompt went through the target.

        It is told when it is to draft: what it would be told for nothing may cost more than drafts
        save.
        """
        self.note(taps)
        self._prompt += tokens
        self._noted += len(tokens)
        if self._brims():
            self._prefill()

    def _brims(self) -> bool:
        """Whether it must be told now or never, and is worth it: taps are not held for ever."""
        if not self.tap_layers or self._untold < MOST_TAPS or self._in_use:
            return self._in_use and self._untold >= FLUSH
        if self.drafter.pays(self._untold):
            return True
        self.sit_out()
        return False

    @property
    def _untold(self) -> int:
        """Tokens that it has not been told of."""
        return self._noted - self.processed

    def sit_out(self) -> None:
        """Draft no more in this request."""
        self.alive = False
        self._taps, self._prompt = [], []

    def _prefill(self) -> None:
        """Tell of the prompt as far as it is known."""
        tokens, self._prompt = self._prompt, []
        for at in range(0, len(tokens), MOST_TAPS):
            part = tokens[at : at + MOST_TAPS]
            taps = self._taken_taps(len(part))
            self._tell("prefill", len(part), partial(self.rows.prefill, row(part)[None], taps))

    def _tell(self, where: str, count: int, call: Callable[[], Any]) -> None:
        """Tell of ``count`` tokens that others chose."""
        started = time.perf_counter()
        self._guard(where, call)
        self.drafter.told(count, (time.perf_counter() - started) * 1e3)
        self.processed += count

    def _taken_taps(self, count: int) -> mx.array | None:
        """The oldest ``[1, count, n*H]`` taps that it has not been told of."""
        if not self._taps:
            return None
        taps = mx.concatenate(self._taps, axis=1) if len(self._taps) > 1 else self._taps[0]
        self._taps = [taps[:, count:]] if taps.shape[1] > count else []
        return taps[:, :count]

    def missed(self, tokens: Sequence[int]) -> None:
        """The first tokens of the session, which the target had in caches made earlier.

        What this drafter has not seen of them it is told now.  One that needs the target's hidden
        states cannot catch up: it sits this request out.
        """
        fresh = tokens[self.processed :]
        if not fresh or not self.alive:
            return
        if self.tap_layers:
            self._fail(
                "prefill", ValueError("the prewarmed cache holds no states for this drafter")
            )
            return
        self.prefilled(fresh, None)

    def prompt_done(self, last: int, taps: mx.array | None) -> None:
        """The last prompt token went through the target."""
        if self._full:
            self.prefilled([last], taps)
        else:
            self.note(taps)
        self._prompt_tokens = self._noted

    def note(self, taps: mx.array | None) -> None:
        """A forward that was not this drafter's round; ``taps`` belong to its ids."""
        if taps is not None and self.tap_layers and self.alive:
            self._taps.append(taps)

    def catch_up(self, tokens: Sequence[int], held: int) -> None:
        """Tell the drafter of the tokens up to ``held`` that others chose."""
        if self._prompt:
            self._prefill()
        if held > self.processed and not self.drafter.provider.supports_external_tokens:
            self.sit_out()
        while held > self.processed and self.alive:
            fresh = tokens[self.processed : min(held, self.processed + MOST_TAPS)]
            taps = self._taken_taps(len(fresh))
            ids = row(fresh)[None]
            self._tell("consume", len(fresh), partial(self.rows.consume, ids, [len(fresh)], taps))

    # --- a round ---------------------------------------------------------------------

    def plan(self, gate: Gate, room: int) -> Plan:
        """How deep to draft now; a resting drafter is tried again from time to time."""
        limit = self.limit(room)
        if not limit or self._looks(gate):
            return NOTHING
        if self._finds_out(gate, limit):
            return Plan(limit, 0.0)
        plan = gate.plan(
            self.drafter.survival,
            0,
            limit,
            draft_cost=lambda depth: self.cost_now(gate, depth),
            credit=self.drafter.credit,
        )
        self._know(gate)
        drafter, curve = self.drafter, gate.curve
        drafter.promise = plan.ratio
        if plan.depth and drafter.pays(self._untold, room + 1):
            return plan
        tried = self.tried(gate, room)
        self._again = tried > 0 and not curve.fixed and drafter.trained
        if not tried:
            self._idle = BETWEEN_PLANS
        return Plan(tried, 0.0)

    def _know(self, gate: Gate) -> None:
        """Times are told in steps."""
        self.drafter.step_ms = 0.0 if gate.curve.fixed else gate.curve.quiet_step_ms

    def telling(self, gate: Gate, room: int) -> float:
        """Plain steps, for each token to come, that it costs to tell it what it does not know."""
        self._know(gate)
        return self.drafter.share(self._untold, room + 1)

    def _finds_out(self, gate: Gate, limit: int) -> bool:
        """Whether to draft so that the cost of rounds becomes known.

        A curve that was measured on a busy machine would keep a good drafter out for good: its
        first rounds are made on credit.  A try that was right is followed by a second round: the
        first one of a row is not timed.
        """
        again, self._again = self._again, False
        drafter, curve = self.drafter, gate.curve
        if again or not drafter.trained or not gate.enabled or curve.fixed or drafter.costed:
            return again
        left = gate.purse.steps + drafter.credit - self._untold * drafter.telling
        return left > 0 and drafter.survival.expected(limit) >= HOPEFUL

    def _looks(self, gate: Gate) -> bool:
        """Whether to leave this round to a plain step, so that the clock knows what those cost.

        Whether rounds pay is told in steps, and a machine may become faster or slower.
        """
        if not self.drafter.provider.supports_external_tokens:
            return False  # it could not be told of those steps
        if not self._looking and gate.enabled and not gate.curve.fixed and self.drafter.looks():
            self._looking = LOOK
        if not self._looking:
            return False
        self._looking -= 1
        return True

    def limit(self, room: int) -> int:
        """Most ids that it may draft now, whether it pays or not."""
        return max(min(self.cap, room), 0) if self.alive and self._idle <= 0 else 0

    def tried(self, gate: Gate, room: int) -> int:
        """How deep to draft although it does not seem to pay: a resting one's try, when due."""
        limit = self.limit(room)
        if not limit or not self.drafter.may_try(self._untold):
            return 0
        late = self.drafter.rested >= LAST_REST
        return limit if late or self._promise(gate, limit) > WORTH_A_TRY else 0

    def _promise(self, gate: Gate, limit: int) -> float:
        """Tokens per cost of perfect drafts, in the best depth."""
        costs = [gate.curve.cost(1 + d) + d * self.cost_now(gate, d) for d in range(1, limit + 1)]
        return max((1 + d) / cost for d, cost in enumerate(costs, 1))

    @property
    def draft_cost(self) -> float:
        """Cost of one draft in plain steps, as measured at first."""
        return self.drafter.cost or 0.0

    def cost_now(self, gate: Gate, depth: int) -> float:
        """Cost of each of ``depth`` drafts in plain steps, as rounds show it."""
        return self.drafter.draft_cost(depth, gate.curve)

    def rest(self, tokens: Sequence[int], held: int) -> None:
        """A plain step or another's round went by."""
        self.drafter.rests()
        self._clock = StepClock()
        self._idle -= 1
        self._noted = held
        if self._brims():
            self.catch_up(tokens, held)

    def draft(self, pending: int, depth: int, position: int) -> list[int] | mx.array:
        """Up to ``depth`` ids after ``pending``: host ids, or ``[d]`` on the device."""
        self._clock.start()
        self._in_use = True
        self.drafter.drafts()
        drafts: list[int] | mx.array | None = self._guard(
            "draft", lambda: self._drafts(pending, depth, position)
        )
        if drafts is None:
            return []
        if len(drafts):
            self._pause = 0
        else:  # nothing to say: ask less often, so that plain steps can overlap
            self._pause = self._idle = min(2 * self._pause + 1, LAST_PAUSE)
        return drafts

    def _drafts(self, pending: int, depth: int, position: int) -> list[int] | mx.array:
        """What the rows answer, or an error that says what is wrong with it."""
        answer: Any = self.rows.draft([pending], depth, [position])
        if isinstance(answer, mx.array):
            if answer.ndim != 2 or answer.shape[0] != 1 or answer.shape[1] > depth:  # noqa: PLR2004
                raise ValueError(f"answered an array of shape {answer.shape}")
            if not mx.issubdtype(answer.dtype, mx.integer):
                raise TypeError(f"answered an array of {answer.dtype}")
            return mx.clip(answer[0], 0, self._vocab_size - 1)
        (only,) = answer
        ids = list(islice(only, depth))
        if not all(type(t) is int and 0 <= t < self._vocab_size for t in ids):
            raise ValueError(f"ids {ids!r} are not all in the vocabulary")
        return ids

    def commit(
        self, drafted: int, accepted: int, entered: list[int], taps: mx.array | None
    ) -> None:
        """End of a round: ``entered`` follows the old pending token, the new one included."""
        for i in range(min(accepted + 1, drafted)):
            self.drafter.survival.learn(i, i < accepted)
        for i in range(min(drafted, self.cap)):
            self.drafted_by_position[i] += 1
            self.accepted_by_position[i] += i < accepted
        self.acceptance_lengths.append(accepted)
        self.drafter.settle(drafted, accepted)
        self._again = self._again and accepted > 0
        warning = self.drafter.first_draft(accepted > 0, self._vocab_size)
        if warning:
            self._on_fault(Fault(self.drafter.plugin, "draft", warning))
        self._guard(
            "commit", lambda: self.rows.commit([entered], taps if self.tap_layers else None)
        )
        self.processed += len(entered)
        self._noted = self.processed

    def timed(self, gate: Gate, drafted: int) -> None:
        """A round ended: learn what drafting costs from its wall time, read to read.

        The first round after something else says nothing: it also brings the drafter up to date.
        """
        clock, curve = self._clock, gate.curve
        clock.read()
        clock.ready()
        self.drafter.rounds += 1
        if not drafted or not clock.step_s or curve.fixed:
            return
        self.drafter.timed(drafted, clock.step_s * 1e3)

    # --- checkpoints -----------------------------------------------------------------

    def captured(self, tokens: Sequence[int], held: int) -> DraftCheckpoint | None:
        """The drafter's state between two rounds.

        None when it sits out, cannot tell, or does not pay what it would have to be told.
        """
        if self._in_use or self.drafter.pays(self._untold):
            self.catch_up(tokens, held)
        if not self.alive or self.processed != held:
            return None
        try:
            with mx.stream(self._stream):
                state = self.rows.capture(0)
            if state.processed_tokens == held:
                return state
            reason = f"captured {state.processed_tokens} processed tokens of {held}"
        except BaseException as error:  # noqa: BLE001 - a plugin may raise anything
            reason = charge(error)
        if not self._mute:  # it drafts on: whoever resumes starts it anew
            self._mute = True
            self._on_fault(Fault(self.drafter.plugin, "capture", reason))
        return None

    def restored(self, state: DraftCheckpoint) -> None:
        """The rows were opened with ``state``."""
        self.processed = self._noted = state.processed_tokens

    def tally(self) -> dict[str, Any]:
        """Counters by position, to be stored."""
        return {name: list(getattr(self, name)) for name in _TALLY}

    def recall(self, tally: Mapping[str, list[int]]) -> None:
        """Go on counting from a stored tally of as many positions."""
        if len(tally["drafted_by_position"]) == self.cap:
            for name in _TALLY:
                setattr(self, name, list(tally[name]))

    # --- faults ----------------------------------------------------------------------

    def _guard(self, where: str, call: Callable[[], Any]) -> Any:  # noqa: ANN401
        if not self.alive:
            return None
        try:
            with mx.stream(self._stream):
                return call()
        except BaseException as error:  # noqa: BLE001 - a plugin may raise anything
            self._fail(where, error)
            return None

    def _fail(self, where: str, error: BaseException) -> None:
        line = charge(error)
        self.alive = False
        self._on_fault(Fault(self.drafter.plugin, where, line))

    def stats(self) -> dict[str, Any]:
        """Counters by position."""
        return {
            "drafter": self.drafter.plugin,
            "drafted_by_position": self.drafted_by_position,
            "accepted_by_position": self.accepted_by_position,
            "acceptance_lengths": self.acceptance_lengths,
            "rounds": len(self.acceptance_lengths),
            "forwards_saved": sum(self.acceptance_lengths),
            "draft_cost": round(self.draft_cost, 4),
        }

    def close(self) -> None:
        """Release the rows, also of a drafter that was quarantined."""
        if self._prompt_tokens is not None:
            self.drafter.replied(self._noted - self._prompt_tokens)
        try:
            self.rows.close()
        except BaseException as error:  # noqa: BLE001 - a plugin may raise anything
            self._fail("close", error)
