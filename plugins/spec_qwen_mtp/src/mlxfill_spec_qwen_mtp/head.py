"""The head itself: one step predicts the token after the next.

``fc(concat(norm(embed(token)), norm(hidden)))``, full-attention layers with KV caches of their own,
a norm; the target's head turns the result into logits, and it is the hidden state of the next
step.  Architecture: DeepSeek-V3 (2024), section 2.2, as Qwen3-Next and Qwen3.5 publish it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten
from mlx_lm.models.base import create_attention_mask
from mlx_lm.models.cache import KVCache
from mlx_lm.models.qwen3_5 import DecoderLayer, TextModelArgs

from mlxfill import load_weights

if TYPE_CHECKING:
    from mlxfill_spec_qwen_mtp.config import HeadConfig
    from mlxfill_spec_qwen_mtp.tensors import Tensors


class MtpHead(nn.Module):
    """Weights under the names of the release: ``fc``, ``pre_fc_norm_*``, ``layers.N``, ``norm``."""

    def __init__(self, config: HeadConfig) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        args = TextModelArgs.from_dict({**config.text, "full_attention_interval": 1})
        size, eps = args.hidden_size, args.rms_norm_eps
        self.fc = nn.Linear(2 * size, size, bias=False)
        self.pre_fc_norm_embedding = nn.RMSNorm(size, eps=eps)
        self.pre_fc_norm_hidden = nn.RMSNorm(size, eps=eps)
        self.layers = [DecoderLayer(args, 0) for _ in range(config.layers)]
        self.norm = nn.RMSNorm(size, eps=eps)
        if config.own_embeddings:
            self.embed_tokens = nn.Embedding(args.vocab_size, size)

    @property
    def own_embedding(self) -> nn.Embedding | None:
        """Where it looks tokens up; None for the target's."""
        return cast("nn.Embedding | None", self.get("embed_tokens"))

    def new_cache(self) -> list[KVCache]:
        """An empty cache a layer."""
        return [KVCache() for _ in self.layers]

    def __call__(self, embedded: mx.array, hidden: mx.array, cache: list[Any]) -> mx.array:
        """Embeddings of tokens and hidden states of the positions before them to normed states.

        All are ``[B, L, H]``.  The target's head reads the result, and so does the next step.
        """
        parts = [self.pre_fc_norm_embedding(embedded), self.pre_fc_norm_hidden(hidden)]
        h = self.fc(mx.concatenate(parts, axis=-1))
        mask = create_attention_mask(h, cache[0])
        for layer, entry in zip(self.layers, cache, strict=True):
            h = layer(h, mask=mask, cache=entry)
        return cast("mx.array", self.norm(h))


def build_head(config: HeadConfig, tensors: Tensors, dtype: mx.Dtype, where: Path) -> MtpHead:
    """A head with these weights, dense ones in ``dtype``; quantized ones stay as they are.

    :param where: file or folder of the weights, for errors.
    :raises DrafterError: a tensor is missing, left over or of another shape; names it.
    """
    head = MtpHead(config)
    load_weights(head, tensors, dtype, where, "a head")
    return head


def parameters(module: nn.Module) -> Tensors:
    """Arrays of a module by name."""
    return dict(cast("list[tuple[str, mx.array]]", tree_flatten(module.parameters())))
