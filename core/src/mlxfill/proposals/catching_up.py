"""What the drafter of one request knows: it is told of tokens that others chose when it pays."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

import mlx.core as mx

from mlxfill.contracts import Fault
from mlxfill.model.reading import row
from mlxfill.plugins.faults import charge
from mlxfill.proposals.group import DraftGroup

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mlxfill.contracts import DraftCheckpoint, DraftRows, DraftSampling
    from mlxfill.model.reading import Stream
    from mlxfill.model.target import Target
    from mlxfill.policy.drafter import Drafter

MOST_AUX_STATES = 2048
"""Tokens whose states are held for a drafter that may never need them, and most told at once."""


class Informed:
    """One row of a drafter, kept aligned with the session; it sits the request out if it fails.

    ``processed`` counts the session tokens that the drafter has taken in; at a round it equals
    what the target's caches hold, and the pending token follows.  ``leaves_out``: whether it may
    sit out; if not, its failure ends the request.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - what it is made of
        self,
        drafter: Drafter,
        rows: DraftRows,
        sampling: DraftSampling,
        vocab_size: int,
        stream: Stream,
        on_fault: Callable[[Fault], None],
    ) -> None:
        """``stream``: where the target computes, so where drafts do."""
        self.sampling, self.vocab_size = sampling, vocab_size
        self.drafter, self.group = drafter, DraftGroup(rows)
        self.group.members.append(self)
        self.aux_layers = tuple(rows.aux_layers)
        self.processed = 0
        self.told_s = 0.0
        self.alive = True
        self.leaves_out = True
        self._full = rows.prefill_mode == "full"
        self.stream, self._on_fault = stream, on_fault
        self._aux_states: list[mx.array] = []
        self._prompt: list[int] = []
        self._noted = 0
        self._mute = False

    def check_aux_states(self, target: Target) -> None:
        """Sit the request out unless the target has the drafter's aux layers."""
        wrong = next((i for i in self.aux_layers if i not in target.has_aux_states), None)
        if wrong is not None:
            self.aux_layers = ()
            last = target.layer_count - 1
            has = f"the target has layers 0 to {last}"
            why = "it gives no [B, L, H] array" if wrong in range(last + 1) else has
            self.failed("open", ValueError(f"wants the output of layer {wrong}; {why}"))

    # --- what happened elsewhere ------------------------------------------------------

    def prefilled(self, tokens: Sequence[int], aux_states: mx.array | None) -> None:
        """A chunk of the prompt went through the target.

        It is told when it is to draft: what it would be told for nothing may cost more than drafts
        save.
        """
        self.note(aux_states)
        self._prompt += tokens
        self._noted += len(tokens)
        if self._brims():
            self._prefill()

    def _brims(self) -> bool:
        """Whether it must be told now or never, and is worth it: states are not held for ever."""
        if not self.aux_layers or self._untold < MOST_AUX_STATES:
            return False
        if self.drafter.affords(self._untold) and self.drafter.pays(self._untold):
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
        self._aux_states, self._prompt = [], []

    def _prefill(self) -> None:
        """Tell of the prompt as far as it is known."""
        tokens, self._prompt = self._prompt, []
        for at in range(0, len(tokens), MOST_AUX_STATES):
            part = tokens[at : at + MOST_AUX_STATES]
            aux_states = self._taken_aux_states(len(part))
            prefill = partial(self.group.rows.prefill, row(part)[None], aux_states)
            self._tell("prefill", len(part), prefill)

    def _tell(self, where: str, count: int, call: Callable[[], Any]) -> None:
        """Tell of ``count`` tokens that others chose."""
        started = time.perf_counter()
        if self.alive:
            self.group.call(where, call)
        self.was_told(count, time.perf_counter() - started)

    def was_told(self, count: int, seconds: float) -> None:
        """It was told of ``count`` tokens."""
        self.told_s += seconds
        self.drafter.told(count, seconds * 1e3)
        self.processed += count

    def _taken_aux_states(self, count: int) -> mx.array | None:
        """The oldest ``[1, count, n*H]`` states that it has not been told of."""
        if not self._aux_states:
            return None
        aux_states = (
            mx.concatenate(self._aux_states, axis=1)
            if len(self._aux_states) > 1
            else self._aux_states[0]
        )
        self._aux_states = [aux_states[:, count:]] if aux_states.shape[1] > count else []
        return aux_states[:, :count]

    def missed(self, tokens: Sequence[int]) -> None:
        """The first tokens of the session, which the target had in caches made earlier.

        What this drafter has not seen of them it is told now.  One that needs the target's hidden
        states cannot catch up: it sits this request out.
        """
        fresh = tokens[self.processed :]
        if not fresh or not self.alive:
            return
        if self.aux_layers:
            self.failed(
                "prefill", ValueError("the prewarmed cache holds no states for this drafter")
            )
            return
        self.prefilled(fresh, None)

    def prompt_done(self, last: int, aux_states: mx.array | None) -> None:
        """The last prompt token went through the target."""
        if self._full:
            self.prefilled([last], aux_states)
        else:
            self.note(aux_states)

    def note(self, aux_states: mx.array | None) -> None:
        """A forward that was not this drafter's round; ``aux_states`` belong to its ids."""
        if aux_states is not None and self.aux_layers and self.alive:
            self._aux_states.append(aux_states)

    def others_chose(self, tokens: Sequence[int], held: int) -> None:
        """The target holds ``held`` of ``tokens``; who drafts is told when much has gathered."""
        self._noted = held
        if self._brims():
            self.catch_up(tokens, held)

    def catch_up(self, tokens: Sequence[int], held: int) -> None:
        """Tell the drafter of the tokens up to ``held`` that others chose."""
        while fresh := self.untold(tokens, held):
            consume = partial(self.group.consume, {self: fresh})
            self._tell("consume", len(fresh[0]), consume)

    def untold(
        self, tokens: Sequence[int], held: int
    ) -> tuple[Sequence[int], mx.array | None] | None:
        """The next ids up to ``held`` that it has not been told of, with their states; None: none.

        The prompt it is told of here.
        """
        if self._prompt:
            self._prefill()
        if held > self.processed and not self.drafter.provider.supports_external_tokens:
            self.sit_out()
        if held <= self.processed or not self.alive:
            return None
        fresh = tokens[self.processed : min(held, self.processed + MOST_AUX_STATES)]
        return fresh, self._taken_aux_states(len(fresh))

    # --- checkpoints -----------------------------------------------------------------

    def captured(self, tokens: Sequence[int], held: int) -> DraftCheckpoint | None:
        """The drafter's state between two rounds.

        None when it sits out, cannot tell, or does not pay what it would have to be told.
        """
        self._noted = held
        if self.drafter.affords(self._untold) and self.drafter.pays(self._untold):
            self.catch_up(tokens, held)
        if not self.alive or self.processed != held:
            return None
        try:
            with mx.stream(self.stream):
                state = self.group.rows.capture(self.group.members.index(self))
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

    def close(self, reply: int = 0) -> None:
        """Release the rows, also of one that was quarantined, after a reply of so many tokens."""
        if reply:
            self.drafter.replied(reply)
        try:
            self.group.leave(self)
        except BaseException as error:  # noqa: BLE001 - a plugin may raise anything
            self.failed("close", error)

    # --- faults ----------------------------------------------------------------------

    def failed(self, where: str, error: BaseException) -> Fault:
        """It sits the request out; the fault is reported."""
        fault = Fault(self.drafter.plugin, where, charge(error))
        self.alive = False
        self._on_fault(fault)
        return fault
