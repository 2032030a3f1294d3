"""The network of the block drafter, for training: all blocks of a conversation side by side."""

from __future__ import annotations

from typing import Any, cast

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models import qwen3

from mlxfill_model_tiny.train import fast_math
from mlxfill_model_tiny.train.configs import DFLASH

BLOCK: int = DFLASH["block_size"]
_UNSEEN = -60.0
"""Added to a score of what a slot may not see; far below all others, and finite."""


class BlockDrafter(nn.Module):
    """DFlash (arXiv 2602.06036): the parameters and the arithmetic of a published drafter.

    States of some of the target's layers are keys and values of what came before; a block of
    the newest token and masks reads them and itself, both ways.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        size, eps = config["hidden_size"], config["rms_norm_eps"]
        self.target_layers: list[int] = config["dflash_config"]["target_layer_ids"]
        self.mask_id: int = config["dflash_config"]["mask_token_id"]
        self.fc = nn.Linear(len(self.target_layers) * size, size, bias=False)
        self.hidden_norm = nn.RMSNorm(size, eps=eps)
        self.layers = [_Layer(config) for _ in range(config["num_hidden_layers"])]
        self.norm = nn.RMSNorm(size, eps=eps)

    def __call__(
        self, embedded: mx.array, states: mx.array, anchors: mx.array, lengths: mx.array
    ) -> mx.array:
        """Embeddings ``[B, K, S, H]`` of K blocks to ``[B, K, S, H]``.

        ``states`` ``[B, T, n * H]``: of the target.  Block k sees those before ``anchors[b, k]``,
        and its own first ``lengths[b, k]`` slots.
        """
        context = self.hidden_norm(self.fc(states))
        before = mx.arange(states.shape[1]) < anchors[..., None]
        inside = mx.arange(embedded.shape[2]) < lengths[..., None]
        seen = mx.concatenate([before, inside], axis=-1)[:, :, None, None]
        for layer in self.layers:
            embedded = layer(embedded, context, anchors, mx.where(seen, 0.0, _UNSEEN))
        return cast("mx.array", self.norm(embedded))


class _Layer(nn.Module):
    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        size, eps = config["hidden_size"], config["rms_norm_eps"]
        self.self_attn = _Attention(config)
        self.mlp = qwen3.MLP(size, config["intermediate_size"])
        self.input_layernorm = nn.RMSNorm(size, eps=eps)
        self.post_attention_layernorm = nn.RMSNorm(size, eps=eps)

    def __call__(
        self, x: mx.array, context: mx.array, anchors: mx.array, mask: mx.array
    ) -> mx.array:
        x = x + self.self_attn(self.input_layernorm(x), context, anchors, mask)
        return x + self.mlp(self.post_attention_layernorm(x))


class _Attention(nn.Module):
    """As many heads of keys as of queries."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        size, eps = config["hidden_size"], config["rms_norm_eps"]
        self._heads, dim = config["num_attention_heads"], config["head_dim"]
        self.q_proj = nn.Linear(size, self._heads * dim, bias=False)
        self.k_proj = nn.Linear(size, self._heads * dim, bias=False)
        self.v_proj = nn.Linear(size, self._heads * dim, bias=False)
        self.o_proj = nn.Linear(self._heads * dim, size, bias=False)
        self.o_proj.weight = mx.zeros_like(self.o_proj.weight)
        self.q_norm, self.k_norm = nn.RMSNorm(dim, eps=eps), nn.RMSNorm(dim, eps=eps)
        self.rope: Any = nn.RoPE(dim, base=config["rope_theta"])

    def __call__(
        self, x: mx.array, context: mx.array, anchors: mx.array, mask: mx.array
    ) -> mx.array:
        """``[B, K, S, H]`` and ``[B, T, H]`` to ``[B, K, S, H]``; mask ``[B, K, 1, 1, T + S]``."""
        keys = self.rope(self.k_norm(self._split(self.k_proj(context))).swapaxes(1, 2))
        values = self._split(self.v_proj(context)).swapaxes(1, 2)
        queries = self._turned(self.q_norm(self._split(self.q_proj(x))), anchors)
        queries = queries * queries.shape[-1] ** -0.5
        own_keys = self._turned(self.k_norm(self._split(self.k_proj(x))), anchors)
        own_values = self._split(self.v_proj(x)).swapaxes(2, 3)
        own_scores = queries @ own_keys.swapaxes(-1, -2)
        scores = self._blocks(self._flat(queries) @ keys.swapaxes(-1, -2), x.shape[1])
        shares = fast_math.softmax(mx.concatenate([scores, own_scores], axis=-1) + mask)
        length = context.shape[1]
        mixed = self._blocks(self._flat(shares[..., :length]) @ values, x.shape[1])
        mixed = mixed + shares[..., length:] @ own_values
        return self.o_proj(mixed.swapaxes(2, 3).flatten(-2))

    def _split(self, x: mx.array) -> mx.array:
        """``[..., heads * D]`` to ``[..., heads, D]``."""
        return mx.unflatten(x, -1, (self._heads, -1))

    def _flat(self, x: mx.array) -> mx.array:
        """``[B, K, heads, S, D]`` to ``[B, heads, K * S, D]``: all blocks read one context."""
        return x.swapaxes(1, 2).flatten(2, 3)

    def _blocks(self, x: mx.array, blocks: int) -> mx.array:
        """The way back."""
        return mx.unflatten(x, 2, (blocks, -1)).swapaxes(1, 2)

    def _turned(self, x: mx.array, anchors: mx.array) -> mx.array:
        """``[B, K, S, heads, D]`` to ``[B, K, heads, S, D]`` at the positions of each block."""
        flat = x.swapaxes(2, 3).flatten(0, 1)
        return mx.unflatten(self.rope(flat, offset=anchors.flatten()), 0, anchors.shape)
