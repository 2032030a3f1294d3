"""Tiny random models of many mlx-lm architectures, built from their own config classes.

Weights are random but seeded; nothing is downloaded.  Every model has a vocabulary of
64 ids, fp32 weights and logits with a spread like that of a trained model.
"""

from __future__ import annotations

import importlib
import json
from functools import cache
from typing import Any

import mlx.core as mx
from mlx.utils import tree_map

VOCAB = 64
HIDDEN = 64

_DENSE: dict[str, Any] = {
    "hidden_size": HIDDEN,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": VOCAB,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": True,
}
_MOE: dict[str, Any] = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "moe_intermediate_size": 32,
    "norm_topk_prob": True,
}
_DELTA: dict[str, Any] = {
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "linear_conv_kernel_dim": 4,
    "full_attention_interval": 4,
}
_SLIDING: dict[str, Any] = {"sliding_window": 8, "sliding_window_pattern": 2}

ARCHITECTURES: dict[str, dict[str, Any]] = {
    # dense
    "llama": _DENSE,
    "qwen2": _DENSE,
    "qwen3": {**_DENSE, "tie_word_embeddings": False},
    "olmo2": _DENSE,
    "phi3": {**_DENSE, "num_key_value_heads": 4, "original_max_position_embeddings": 4096},
    "granite": {
        **_DENSE,
        "logits_scaling": 2.0,
        "attention_multiplier": 0.1,
        "embedding_multiplier": 1.0,
        "residual_multiplier": 1.0,
        "attention_bias": False,
        "mlp_bias": False,
        "rope_scaling": None,
    },
    "gpt2": {
        "n_ctx": 4096,
        "n_embd": HIDDEN,
        "n_head": 4,
        "n_layer": 2,
        "n_positions": 4096,
        "layer_norm_epsilon": 1e-5,
        "vocab_size": VOCAB,
        "num_key_value_heads": 4,
    },
    "gpt_neox": {
        "max_position_embeddings": 4096,
        "hidden_size": HIDDEN,
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "layer_norm_eps": 1e-5,
        "vocab_size": VOCAB,
        "rotary_emb_base": 10000,
        "rotary_pct": 0.25,
    },
    # mixture of experts
    "qwen3_moe": {**_DENSE, **_MOE},
    "mixtral": {**_DENSE, "num_local_experts": 4},
    # latent attention: one id at a time goes another way than several
    "deepseek_v3": {
        **_DENSE,
        "num_key_value_heads": 4,
        "moe_intermediate_size": 32,
        "num_hidden_layers": 3,
        "n_shared_experts": 1,
        "n_routed_experts": 4,
        "routed_scaling_factor": 1.0,
        "kv_lora_rank": 16,
        "q_lora_rank": 16,
        "qk_rope_head_dim": 8,
        "v_head_dim": 16,
        "qk_nope_head_dim": 16,
        "num_experts_per_tok": 2,
        "first_k_dense_replace": 1,
        "attention_bias": False,
    },
    # attention in chunks
    "llama4": {
        "text_config": {
            **_DENSE,
            "model_type": "llama4_text",
            "attention_bias": False,
            "attention_chunk_size": 8,
            "interleave_moe_layer_step": 2,
            "intermediate_size_mlp": 96,
            "num_experts_per_tok": 1,
            "num_local_experts": 2,
            "rope_scaling": None,
            "use_qk_norm": True,
        },
    },
    # soft-capped, sliding windows
    "gemma2": {
        **_DENSE,
        "query_pre_attn_scalar": 16,
        "attn_logit_softcapping": 50.0,
        "final_logit_softcapping": 30.0,
    },
    "gemma3_text": {
        **_DENSE,
        **_SLIDING,
        "query_pre_attn_scalar": 16,
        "rope_local_base_freq": 10000.0,
    },
    "cohere2": {
        **_DENSE,
        **_SLIDING,
        "layer_norm_eps": 1e-5,
        "logit_scale": 0.5,
        "attention_bias": False,
        "layer_norm_bias": False,
    },
    "olmo3": {**_DENSE, "sliding_window": 8},
    "gpt_oss": {
        "num_hidden_layers": 2,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "vocab_size": VOCAB,
        "hidden_size": HIDDEN,
        "intermediate_size": 64,
        "head_dim": 16,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "sliding_window": 8,
        "layer_types": ["sliding_attention", "full_attention"],
    },
    # recurrent
    "mamba": {
        "vocab_size": VOCAB,
        "hidden_size": HIDDEN,
        "intermediate_size": 128,
        "state_size": 16,
        "num_hidden_layers": 2,
        "conv_kernel": 4,
        "use_bias": False,
        "use_conv_bias": True,
        "time_step_rank": "auto",
    },
    "mamba2": {
        "num_heads": 4,
        "head_dim": 16,
        "vocab_size": VOCAB,
        "hidden_size": HIDDEN,
        "intermediate_size": 64,
        "state_size": 16,
        "num_hidden_layers": 2,
        "layer_norm_epsilon": 1e-5,
        "conv_kernel": 4,
        "n_groups": 1,
        "use_bias": False,
        "use_conv_bias": True,
        "tie_word_embeddings": True,
        "time_step_limit": (0.0, 100.0),
        "time_step_rank": "auto",
    },
    "rwkv7": {
        "vocab_size": VOCAB,
        "hidden_size": HIDDEN,
        "intermediate_size": 128,
        "norm_eps": 1e-5,
        "head_dim": 16,
        "num_hidden_layers": 2,
        "a_low_rank_dim": 8,
        "v_low_rank_dim": 8,
        "gate_low_rank_dim": 8,
        "decay_low_rank_dim": 8,
    },
    # hybrid
    "qwen3_5": {**_DENSE, **_DELTA},
    "qwen3_next": {
        **_DENSE,
        **_DELTA,
        **_MOE,
        "shared_expert_intermediate_size": 32,
        "partial_rotary_factor": 0.25,
    },
    "lfm2": {
        "vocab_size": VOCAB,
        "hidden_size": HIDDEN,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 4096,
        "norm_eps": 1e-5,
        "conv_bias": False,
        "conv_L_cache": 3,
        "block_dim": HIDDEN,
        "block_ff_dim": 128,
        "block_multiple_of": 32,
        "block_ffn_dim_multiplier": 1.0,
        "block_auto_adjust_ff_dim": False,
        "full_attn_idxs": [2],
    },
    "recurrent_gemma": {
        "attention_bias": False,
        "conv1d_width": 4,
        "hidden_size": HIDDEN,
        "intermediate_size": 128,
        "logits_soft_cap": 30.0,
        "num_attention_heads": 4,
        "num_hidden_layers": 3,
        "num_key_value_heads": 1,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "attention_window_size": 8,
        "vocab_size": VOCAB,
        "block_types": ["recurrent", "recurrent", "attention"],
    },
    "nemotron_h": {
        "vocab_size": VOCAB,
        "hidden_size": HIDDEN,
        "intermediate_size": 64,
        "num_hidden_layers": 4,
        "max_position_embeddings": 4096,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "attention_bias": False,
        "mamba_num_heads": 4,
        "mamba_head_dim": 16,
        "mamba_proj_bias": False,
        "ssm_state_size": 16,
        "conv_kernel": 4,
        "n_groups": 1,
        "mlp_bias": False,
        "layer_norm_epsilon": 1e-5,
        "use_bias": False,
        "use_conv_bias": True,
        "hybrid_override_pattern": ["M", "-", "*", "M"],
    },
    # composite cache entries
    "baichuan_m1": {
        "vocab_size": VOCAB,
        "hidden_size": HIDDEN,
        "intermediate_size": 96,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "rope_theta": 10000.0,
        "sliding_window": 8,
        "sliding_window_layers": [1, 3],
        "conv_window": 2,
        "rms_norm_eps": 1e-6,
    },
    "falcon_h1": {
        "hidden_size": HIDDEN,
        "head_dim": 16,
        "intermediate_size": 128,
        "mamba_d_head": 16,
        "mamba_d_ssm": 64,
        "mamba_d_state": 16,
        "mamba_n_heads": 4,
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "num_key_value_heads": 2,
        "vocab_size": VOCAB,
        "rope_theta": 10000.0,
        "max_position_embeddings": 4096,
        "lm_head_multiplier": 1.0,
    },
}
"""Config of each architecture, by mlx-lm's ``model_type``."""

ROUNDED = frozenset(
    {
        "baichuan_m1",
        "cohere2",
        "deepseek_v3",
        "falcon_h1",
        "gemma3_text",
        "gpt_oss",
        "mamba2",
        "nemotron_h",
        "olmo3",
        "recurrent_gemma",
    }
)
"""Where one forward of several ids and several forwards of one add up in another order: a wrapped
ring, a scan in chunks, latent attention.  Logits then differ by up to ``ROUNDING``; for all
other architectures they are equal bit by bit (CPU, the BLAS of the wheel)."""
ROUNDING = 3e-5


def tiny_model(name: str, seed: int = 0, **changes: Any) -> Any:  # noqa: ANN401 - an mlx-lm model
    """A random model of architecture ``name`` with ``changes`` to its config.

    fp32; equal seeds give equal weights.  Raises ``KeyError`` for a name that is not in
    ``ARCHITECTURES``.
    """
    config = {**ARCHITECTURES[name], "model_type": name, **changes}
    module = importlib.import_module(f"mlx_lm.models.{name}")
    mx.random.seed(seed)
    model = module.Model(module.ModelArgs.from_dict(config))
    model.update(tree_map(_spread, model.parameters()))
    model.eval()
    mx.eval(model.parameters())
    return model


def shared_model(name: str, **changes: Any) -> Any:  # noqa: ANN401 - an mlx-lm model
    """``tiny_model``, made once for the same arguments: bind it, do not change it."""
    return _made(name, json.dumps(changes, sort_keys=True))


@cache
def _made(name: str, changes: str) -> Any:  # noqa: ANN401
    return tiny_model(name, **json.loads(changes))


def perturbed(model: Any, other: Any, scale: float, seed: int = 1) -> Any:  # noqa: ANN401
    """Give ``other`` (same architecture) the weights of ``model`` plus noise.

    ``scale`` is the noise in standard deviations of each weight.  The pair agrees some of the
    time: a drafter that is sometimes right.
    """
    mx.random.seed(seed)

    def shaken(w: mx.array) -> mx.array:
        return w + scale * mx.std(w) * mx.random.normal(w.shape)

    other.update(tree_map(shaken, model.parameters()))
    mx.eval(other.parameters())
    return other


def _spread(weight: mx.array) -> mx.array:
    """Fresh matrices are small for so few layers: scale them until logits tell tokens apart.

    What a fresh model leaves constant (norms, gates, zeroed mixers) gets noise: a block that is
    switched off would prove nothing.
    """
    if not mx.issubdtype(weight.dtype, mx.floating):
        return weight
    if weight.size > 1 and mx.all(weight == weight.flatten()[0]).item():
        return weight + 0.3 * mx.random.normal(weight.shape)
    return weight * 2.5 if weight.ndim == 2 else weight  # noqa: PLR2004
