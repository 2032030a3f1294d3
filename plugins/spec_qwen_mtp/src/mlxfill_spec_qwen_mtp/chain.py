"""One head on one target, and one row of drafts on it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import mlx.core as mx

from mlxfill import CompiledForward, DrafterError, DraftSampling, TargetView

if TYPE_CHECKING:
    from mlx_lm.models.cache import KVCache

    from mlxfill_spec_qwen_mtp.head import MtpHead
    from mlxfill_spec_qwen_mtp.settings import HeldRows

CHUNK = 512
"""Most rows of a backlog: more are forwarded at once, so that graphs stay bounded."""


class Head:
    """A head between the embedding and the output head of its target."""

    def __init__(
        self, module: MtpHead, target: TargetView, vocabulary: tuple[int, ...] | None
    ) -> None:
        """``vocabulary``: ascending ids that may be drafted, None for all."""
        self.module, self.vocabulary = module, vocabulary
        self._target = target
        self._rows = None if vocabulary is None else target.head_rows(vocabulary)
        self._ids = None if vocabulary is None else mx.array(vocabulary)
        self._compiled = CompiledForward(self._guess)
        self._compiled_rows = CompiledForward(self._guess_rows)

    def guess(
        self, tokens: mx.array, hidden: mx.array, cache: list[KVCache]
    ) -> tuple[mx.array, mx.array]:
        """As ``step``, but the last state ``[1, 1, H]`` only, and its logits ``[1, V]``."""
        state, logits = self._compiled(tokens, hidden, cache=cache)
        return state, logits

    def _guess(
        self, tokens: mx.array, hidden: mx.array, cache: list[KVCache]
    ) -> tuple[mx.array, mx.array]:
        state = self.step(tokens, hidden, cache)[:, -1:]
        return state, self.logits(state)

    def guess_rows(
        self, tokens: mx.array, hidden: mx.array, counts: Sequence[int], cache: list[KVCache]
    ) -> tuple[mx.array, mx.array]:
        """The same of several rows: ``[B, 1, H]`` and ``[B, V]`` after each row's ``counts[b]``."""
        last = mx.array([max(count - 1, 0) for count in counts])[:, None, None]
        state, logits = self._compiled_rows(tokens, hidden, last, cache=cache)
        return state, logits

    def _guess_rows(
        self, tokens: mx.array, hidden: mx.array, last: mx.array, cache: list[KVCache]
    ) -> tuple[mx.array, mx.array]:
        state = mx.take_along_axis(self.step(tokens, hidden, cache), last, axis=1)
        return state, self.logits(state)

    def step(self, tokens: mx.array, hidden: mx.array, cache: list[KVCache]) -> mx.array:
        """``[B, L]`` tokens and the states ``[B, L, H]`` before them to states ``[B, L, H]``."""
        own = self.module.own_embedding
        return self.module((own or self._target.embed)(tokens), hidden, cache)

    def logits(self, state: mx.array) -> mx.array:
        """``[B, 1, H]`` to ``[B, V]``; ids outside the draft vocabulary get minus infinity.

        Full width, so that the noise of a position's key meets the same ids as in the target.
        """
        if self._rows is None or self._ids is None:
            return self._target.project(state)[:, -1, :]
        some = self._rows(state)[:, -1, :]
        every = mx.full((some.shape[0], self._target.vocab_size), -mx.inf, some.dtype)
        every[:, self._ids] = some
        return every


class Chain:
    """The drafts of one row.

    Row p of the head's cache pairs token p + 1 with the target's hidden state at p.  With
    ``processed`` tokens known the hidden state of the last one waits for its partner, the
    pending token; tokens and states that others brought wait in front of it.
    """

    def __init__(
        self, head: Head, sampling: DraftSampling, cache: list[KVCache], held_rows: HeldRows
    ) -> None:
        """An empty row; ``cache`` is used in place."""
        self.cache = cache
        self.processed = 0
        self._head, self._sampling = head, sampling
        self._held_rows = held_rows
        self._tokens: list[mx.array] = []
        self._states: list[mx.array] = []
        self._fed = 0

    def resume(self, processed: int, state: mx.array) -> None:
        """Go on after ``processed`` tokens; ``state`` ``[1, 1, H]`` is that of the last of them."""
        self.processed, self._states = processed, [state]

    @property
    def sampling(self) -> DraftSampling:
        """How its drafts are drawn."""
        return self._sampling

    @property
    def state(self) -> mx.array:
        """The hidden state ``[1, 1, H]`` of the last token processed, after ``catch_up``."""
        return self._states[-1][:, -1:]

    def take(self, tokens: mx.array, states: mx.array) -> None:
        """Take note of ``[1, L]`` tokens that entered and their hidden states ``[1, L, H]``."""
        paired = tokens if self.processed else tokens[:, 1:]  # the first token follows nothing
        if paired.shape[1]:
            self._tokens.append(paired)
        self._states.append(states)
        self.processed += tokens.shape[1]
        if sum(each.shape[1] for each in self._tokens) >= CHUNK and self.cache:
            self.catch_up()

    def catch_up(self) -> None:
        """Forward what waits, and wait for it; only keys and values are computed of it."""
        if self._tokens:
            tokens, states = self._waiting()
            rows = tokens.shape[1]
            self._head.step(tokens, states[:, :rows], self.cache)
            self._states = [states[:, rows:]]
        mx.eval([entry.state for entry in self.cache], self._states)

    def draft(self, pending: int, depth: int, position: int) -> mx.array:
        """``[1, depth]`` ids after ``pending``, which enters; the first is for ``position``.

        Nothing is read back: each step is dispatched while the next one is built.
        """
        tokens, states = self.begin(pending)
        state, logits = self._head.guess(tokens, states, self.cache)
        drafts = [self._draw(logits, position)]
        for step in range(1, depth):
            state, logits = self._head.guess(drafts[-1], state, self.cache)
            drafts.append(self._draw(logits, position + step))
        self._fed = depth - 1
        return mx.concatenate(drafts, axis=1)

    def settle(self, entered: Sequence[int], states: mx.array) -> None:
        """End the draft: ``entered`` are the accepted ids and the next pending one, ``states``
        ``[1, len(entered), H]`` those of the old pending token and of the accepted ids.
        """
        held = self.enter(entered, states, self._fed)
        for entry in self.cache:
            entry.trim(self._fed - held)

    def begin(self, pending: int) -> tuple[mx.array, mx.array]:
        """``pending`` enters: the tokens ``[1, n]`` and states ``[1, n, H]`` to be forwarded."""
        if not self._states:
            raise DrafterError("an MTP head cannot draft before a token was prefilled")
        self.processed += 1
        self._tokens.append(mx.array([[pending]]))
        tokens, states = self._waiting()
        self._states = []
        return tokens, states

    def enter(self, entered: Sequence[int], states: mx.array, fed: int) -> int:
        """As ``settle`` says, after ``fed`` drafts were forwarded: how many of them stay."""
        accepted = entered[:-1]
        held = min(len(accepted), fed) if self._held_rows == "chained" else 0
        if accepted[held:]:
            self._tokens.append(mx.array([accepted[held:]]))
        self._states.append(states[:, held:])
        self.processed += len(accepted)
        return held

    def apart(self, cache: list[KVCache]) -> Chain:
        """The same row with a cache of its own."""
        chain = Chain(self._head, self._sampling, cache, self._held_rows)
        chain.processed = self.processed
        chain._tokens += self._tokens
        chain._states += self._states
        return chain

    def _waiting(self) -> tuple[mx.array, mx.array]:
        """All waiting tokens ``[1, n]`` and all waiting states ``[1, n or n + 1, H]``."""
        tokens, self._tokens = _joined(self._tokens), []
        return tokens, _joined(self._states)

    def _draw(self, logits: mx.array, position: int) -> mx.array:
        """``[1, 1]`` ids."""
        drawn = self._sampling.draw(logits, (position,))[:, None]
        mx.async_eval(drawn)
        return drawn


def _joined(parts: list[mx.array]) -> mx.array:
    return mx.concatenate(parts, axis=1) if len(parts) > 1 else parts[0]
