"""The drafter itself, with weights under their published names.

``norm(layers(embed(block), hidden_norm(fc(states))))``: the block is the token that it follows
and masks, the states are outputs of several layers of the target, side by side.  DFlash (arXiv
2602.06036) reads each draft off its own slot; DFlash2 and DSpark let neighbours agree.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models.cache import KVCache

from mlxfill_spec_dflash.layers import Layer, Window

if TYPE_CHECKING:
    from collections.abc import Callable

    from mlxfill_spec_dflash.config import DrafterConfig

    Draw = Callable[[mx.array, int], mx.array]


class Selector(nn.Module):
    """DFlash2: among the likeliest ids of each slot, those that follow each other well."""

    def __init__(self, config: DrafterConfig) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        rank = config.selector_rank
        self.predecessor_codebook = nn.Embedding(config.vocab_size, rank)
        self.successor_codebook = nn.Embedding(config.vocab_size, rank)
        self.hidden_projection = nn.Linear(config.hidden_size, rank, bias=False)
        self._most = config.selector_top_k

    def __call__(
        self, hidden: mx.array, logits: mx.array, anchor: mx.array, draw: Draw
    ) -> mx.array:
        """``[B, D, H]``, ``[B, D, V]`` and the ids before ``[B]`` to ``[B, D]`` ids."""
        among = mx.argpartition(logits, -self._most, axis=-1)[..., -self._most :]
        single = mx.take_along_axis(logits, among, axis=-1)
        hidden, successors = self.hidden_projection(hidden), self.successor_codebook(among)
        drafts: list[mx.array] = []
        before = anchor
        for at in range(logits.shape[1]):
            wanted = (self.predecessor_codebook(before) * hidden[:, at])[:, None]
            scores = single[:, at] + (wanted * successors[:, at]).sum(-1)
            every = mx.full(logits[:, at].shape, -mx.inf, scores.dtype)
            before = draw(mx.put_along_axis(every, among[:, at], scores, axis=-1), at)
            drafts.append(before)
        return mx.stack(drafts, axis=1)


class Markov(nn.Module):
    """DSpark: logits of a slot are corrected by the draft before it, at low rank."""

    def __init__(self, config: DrafterConfig) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.markov_w1 = nn.Embedding(config.vocab_size, config.markov_rank)
        self.markov_w2 = nn.Linear(config.markov_rank, config.draft_vocab_size, bias=False)

    def __call__(self, logits: mx.array, anchor: mx.array, draw: Draw) -> mx.array:
        """``[B, D, V]`` and the ids before ``[B]`` to ``[B, D]`` ids."""
        drafts: list[mx.array] = []
        before = anchor
        for at in range(logits.shape[1]):
            before = draw(logits[:, at] + self.markov_w2(self.markov_w1(before)), at)
            drafts.append(before)
        return mx.stack(drafts, axis=1)


class BlockModule(nn.Module):
    """Weights under the names of the release.

    ``embed_tokens`` and ``lm_head`` are there where the release has its own ones, ``d2t`` where it
    drafts some ids only: what to add to the number of each.
    """

    def __init__(self, config: DrafterConfig, *, own_embedding: bool, own_head: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        size, eps = config.hidden_size, config.norm_eps
        self.fc = nn.Linear(len(config.target_layers) * size, size, bias=False)
        self.hidden_norm = nn.RMSNorm(size, eps=eps)
        self.layers = [Layer(config, number) for number in range(config.layers)]
        self.norm = nn.RMSNorm(size, eps=eps)
        if config.method == "dflash2":
            self.candidate_selector = Selector(config)
        if config.markov_rank:
            self.markov_head = Markov(config)
        if own_embedding:
            self.embed_tokens = nn.Embedding(config.vocab_size, size)
        if own_head:
            self.lm_head = nn.Linear(size, config.draft_vocab_size, bias=False)
        if config.draft_vocab_size != config.vocab_size:
            self.d2t = mx.zeros((config.draft_vocab_size,), mx.int64)

    def new_cache(self) -> list[KVCache]:
        """An empty cache a layer."""
        return [KVCache() for _ in self.layers]

    def context(self, states: mx.array) -> mx.array:
        """``[B, M, n * H]`` outputs of n layers of the target to ``[B, M, H]``."""
        return cast("mx.array", self.hidden_norm(self.fc(states)))

    def remember(self, states: mx.array, cache: list[Any]) -> None:
        """Write ``[B, L, n * H]`` states into the cache."""
        context = self.context(states)
        for layer, entry in zip(self.layers, cache, strict=True):
            layer.self_attn.remember(context, entry, entry.offset)

    def __call__(
        self, block: mx.array, states: mx.array, window: Window, cache: list[Any]
    ) -> mx.array:
        """Embeddings of a block ``[B, S, H]`` and fresh states to normed states ``[B, S, H]``."""
        context = self.context(states)
        for layer, entry in zip(self.layers, cache, strict=True):
            block = layer(block, context, window, entry)
        return cast("mx.array", self.norm(block))

    def chosen(self, hidden: mx.array, logits: mx.array, anchor: mx.array, draw: Draw) -> mx.array:
        """``[B, D, H]``, ``[B, D, V]`` and the ids before ``[B]`` to ``[B, D]`` ids.

        ``draw(logits, d)`` draws ``[B]`` ids of slot d.
        """
        if "candidate_selector" in self:
            return self.candidate_selector(hidden, logits, anchor, draw)
        return self.markov_head(logits, anchor, draw)

    def widened(self, logits: mx.array, vocab_size: int) -> mx.array:
        """Logits ``[..., D]`` of the ids that it drafts to ``[..., vocab_size]`` of all.

        Full width, so that the noise of a position's key meets the same ids as in the target.
        """
        if "d2t" not in self:
            return logits
        every = mx.full((*logits.shape[:-1], vocab_size), -mx.inf, logits.dtype)
        every[..., mx.arange(self.d2t.size) + self.d2t] = logits
        return every

    @property
    def is_parallel(self) -> bool:
        """Whether each slot is drawn for itself."""
        return "candidate_selector" not in self and "markov_head" not in self
