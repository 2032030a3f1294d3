"""The three networks: hybrid target, dense draft model, MTP head."""

from __future__ import annotations

import math
from typing import Any, cast

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_map_with_path
from mlx_lm.models import qwen3, qwen3_5

from mlxfill_model_tiny.train.configs import DRAFT, TARGET

_BLOCK_OUTPUTS = ("out_proj", "o_proj", "down_proj")


def new_target(vocabulary: int) -> Any:  # noqa: ANN401 - mlx-lm's model, untyped
    """A Qwen3.5 hybrid: gated DeltaNet layers (arXiv 2412.06464) and full attention."""
    model = qwen3_5.Model(qwen3_5.ModelArgs.from_dict({**TARGET, "vocab_size": vocabulary}))
    for layer in model.layers:
        if layer.is_linear:
            _decay_slowly(layer.linear_attn)
    _silence_blocks(model)
    return model


def new_draft(vocabulary: int) -> Any:  # noqa: ANN401 - mlx-lm's model, untyped
    """A dense Qwen3 of two layers."""
    model = qwen3.Model(qwen3.ModelArgs.from_dict({**DRAFT, "vocab_size": vocabulary}))
    _silence_blocks(model)
    return model


def _decay_slowly(layer: qwen3_5.GatedDeltaNet) -> None:
    """Begin with a state that lasts, so that gradients reach far."""
    shape = (layer.num_v_heads,)
    step = mx.exp(mx.random.uniform(math.log(1e-3), math.log(0.1), shape))
    layer.dt_bias = step + mx.log(-mx.expm1(-step))
    layer.A_log = mx.log(mx.random.uniform(1, 8, shape))


def _silence_blocks(model: nn.Module) -> None:
    """Begin with blocks that add nothing: the head sees the token itself from the first step."""

    def silent(path: str, array: mx.array) -> mx.array:
        return mx.zeros_like(array) if path.split(".")[-2] in _BLOCK_OUTPUTS else array

    model.update(tree_map_with_path(silent, model.parameters()))


class MTPHead(nn.Module):
    """Multi-token prediction (DeepSeek-V3, arXiv 2412.19437) as Qwen3.5 releases train it.

    The parameters and the arithmetic of the ``qwen3_5_mtp`` format: one projection of
    embedding and hidden state, one full-attention layer, one norm.  The target's own
    head turns the output into logits.

    :param config: the target's ``text_config``.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        args = qwen3_5.TextModelArgs.from_dict(
            {
                **config,
                "rope_parameters": dict(config["rope_parameters"]),
                "full_attention_interval": 1,
            }
        )
        size, eps = args.hidden_size, args.rms_norm_eps
        self.fc = nn.Linear(2 * size, size, bias=False)
        self.pre_fc_norm_embedding = nn.RMSNorm(size, eps=eps)
        self.pre_fc_norm_hidden = nn.RMSNorm(size, eps=eps)
        self.layers = [qwen3_5.DecoderLayer(args, 0)]
        self.norm = nn.RMSNorm(size, eps=eps)

    def __call__(self, embedding: mx.array, hidden: mx.array) -> mx.array:
        """``[B, T, H]`` embeddings of tokens p + 1 and hidden states at p to ``[B, T, H]``."""
        joined = mx.concatenate(
            [self.pre_fc_norm_embedding(embedding), self.pre_fc_norm_hidden(hidden)], axis=-1
        )
        layer = cast("Any", self.layers[0])
        return cast("mx.array", self.norm(layer(self.fc(joined), "causal", None)))


def layer_states(target: Any, ids: mx.array) -> list[mx.array]:  # noqa: ANN401
    """``[B, T]`` ids to the output ``[B, T, H]`` of each layer, before the final norm."""
    body = target.model
    states: list[mx.array] = []
    hidden = body.embed_tokens(ids)
    for layer in body.layers:
        hidden = layer(hidden, None if layer.is_linear else "causal", None)
        states.append(hidden)
    return states


def logits_of(target: Any, hidden: mx.array) -> mx.array:  # noqa: ANN401
    """``[B, T, H]`` before the final norm to ``[B, T, V]``."""
    return project(target, target.model.norm(hidden))


def project(target: Any, normed: mx.array) -> mx.array:  # noqa: ANN401
    """The target's tied head alone: ``[B, T, H]`` after a norm to ``[B, T, V]``."""
    return cast("mx.array", target.model.embed_tokens.as_linear(normed))
