"""One drafter on one target: from what a row has heard to the ids of a block."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import mlx.core as mx
from attrs import frozen

from mlxfill import CompiledForward, DraftSampling, TargetView
from mlxfill_spec_dflash.layers import Window

if TYPE_CHECKING:
    from mlxfill_spec_dflash.config import DrafterConfig
    from mlxfill_spec_dflash.module import BlockModule

MOST_COMPILED = 48
"""Most slots of a forward, context and block, that are worth a graph of their own."""


@frozen
class Ask:
    """What one row wants: ids after ``pending``, the first of them for ``position``.

    ``states`` ``[1, m, n * H]`` are what its cache lacks.  A None pending id: nothing.
    """

    pending: int | None
    position: int
    states: mx.array
    sampling: DraftSampling


class Drafter:
    """A module between the embedding and the head of its target."""

    def __init__(self, module: BlockModule, config: DrafterConfig, target: TargetView) -> None:
        self.module, self.config = module, config
        self._target = target
        self._own_embedding, self._own_head = "embed_tokens" in module, "lm_head" in module
        self._caps = config.softcap is not None and (self._own_head or _is_linear(target))
        self._compiled = CompiledForward(self._forward, most_ids=MOST_COMPILED)

    @property
    def aux_width(self) -> int:
        """Numbers of a token's states."""
        return len(self.config.target_layers) * self.config.hidden_size

    def propose(self, asks: Sequence[Ask], depth: int, cache: list[Any]) -> tuple[mx.array, int]:
        """``[B, depth]`` ids on the device, and how many slots were written into the cache.

        Of row b's slots the first ones, as many as it had states, are to be kept.
        """
        counts = [0 if ask.pending is None else ask.states.shape[1] for ask in asks]
        fresh = _bucket(max([*counts, self.config.drafts + 1]))  # what a round may bring: one graph
        states = [
            mx.pad(ask.states[:, :count], [(0, 0), (0, fresh - count), (0, 0)])
            for ask, count in zip(asks, counts, strict=True)
        ]
        masks = depth - self.config.from_anchor
        block = mx.array([[ask.pending or 0, *[self.config.mask_id] * masks] for ask in asks])
        hidden, logits = self._compiled(
            mx.array([_order(count, fresh, masks + 1) for count in counts]),
            block,
            mx.concatenate(states) if len(states) > 1 else states[0],
            mx.array(counts),
            cache=cache,
        )
        return self._drawn(asks, block[:, 0], hidden, logits), fresh + masks + 1

    def _forward(
        self, order: mx.array, block: mx.array, states: mx.array, counts: mx.array, cache: list[Any]
    ) -> tuple[mx.array, mx.array]:
        """The states ``[B, D, H]`` and logits ``[B, D, V]`` from which D drafts are drawn."""
        config, size = self.config, block.shape[1]
        embed = self.module.embed_tokens if self._own_embedding else self._target.embed
        embedded = embed(block) * config.embedding_scale
        window = Window(order, counts, cache[0].offset, size)
        hidden = self.module(embedded, states, window, cache)
        hidden = hidden if config.from_anchor else hidden[:, 1:]
        project = self.module.lm_head if self._own_head else self._target.project
        logits = project(hidden) * config.output_scale
        if self._caps and config.softcap is not None:
            logits = mx.tanh(logits / config.softcap) * config.softcap
        return hidden, logits

    def _drawn(
        self, asks: Sequence[Ask], anchor: mx.array, hidden: mx.array, logits: mx.array
    ) -> mx.array:
        """``[B, D]`` ids."""
        depth, every = logits.shape[1], self.config.vocab_size
        if self.module.is_parallel:
            logits = self.module.widened(logits, every)
            parts = [
                ask.sampling.draw(logits[row], range(ask.position, ask.position + depth))
                for row, ask in enumerate(asks)
            ]
            return mx.stack(parts)

        def draw(one: mx.array, at: int) -> mx.array:
            one = self.module.widened(one, every)
            parts = [
                ask.sampling.draw(one[row : row + 1], (ask.position + at,))
                for row, ask in enumerate(asks)
            ]
            return mx.concatenate(parts) if len(parts) > 1 else parts[0]

        return self.module.chosen(hidden, logits, anchor, draw)


def _bucket(count: int) -> int:
    """A power of two: few lengths, so that few graphs are traced."""
    return 1 << (max(count, 1) - 1).bit_length()


def _order(count: int, fresh: int, size: int) -> list[int]:
    """Which of ``fresh`` states and ``size`` slots go where: states, slots, what is left over."""
    return [*range(count), *range(fresh, fresh + size), *range(count, fresh)]


def _is_linear(target: TargetView) -> bool:
    """Whether the target's head leaves it to others to cap its logits."""
    state = mx.sin(mx.arange(1, target.hidden_size + 1, dtype=mx.float32))[None, None]
    once, twice = target.project(state), target.project(2 * state)
    return bool(mx.allclose(2 * once, twice, rtol=1e-2, atol=1e-2 * float(mx.abs(once).max())))
