"""Tiny configs for the model files of mlx-lm.

mlx-lm's config classes take what they know from a dictionary and leave the rest, so one set of
small sizes under all the names in use does for most of them.  ``CHANGES`` has what a file wants
beside or instead.  A file that a newer mlx-lm brings needs no entry where the sizes do.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

VOCAB = 64
HIDDEN = 64
_SLIDING, _FULL = "sliding_attention", "full_attention"
_IN_TURN = [_SLIDING, _FULL, _SLIDING, _FULL]
_ROPE = {"rope_theta": 10000.0, "rope_type": "default"}
_ROPE_SCALED_BY_POSITION = {
    **_ROPE,
    "type": "default",
    "factor": 2.0,
    "llama_4_scaling_beta": 0.1,
    "original_max_position_embeddings": 16,
}

SIZES: dict[str, Any] = {
    "vocab_size": VOCAB,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": True,
    # width and depth
    "hidden_size": HIDDEN,
    "d_model": HIDDEN,
    "n_embd": HIDDEN,
    "intermediate_size": 96,
    "n_inner": 96,
    "num_hidden_layers": 4,
    "num_layers": 4,
    "n_layer": 4,
    "n_layers": 4,
    "n_ctx": 4096,
    "n_positions": 4096,
    # heads
    "num_attention_heads": 4,
    "n_head": 4,
    "n_heads": 4,
    "num_heads": 4,
    "num_key_value_heads": 2,
    "num_kv_heads": 2,
    "head_dim": 16,
    "use_qk_norm": True,
    "attention_bias": False,
    "mlp_bias": False,
    "use_bias": False,
    "use_qkv_bias": False,
    # norms and scales
    "rms_norm_eps": 1e-6,
    "layer_norm_eps": 1e-5,
    "layer_norm_epsilon": 1e-5,
    "layernorm_epsilon": 1e-5,
    "norm_eps": 1e-5,
    "embedding_multiplier": 1.0,
    "attention_multiplier": 0.1,
    "residual_multiplier": 1.0,
    "logits_scaling": 2.0,
    "logit_scale": 0.5,
    "query_pre_attn_scalar": 16,
    "final_logit_softcapping": 30.0,
    # positions
    "rope_theta": 10000.0,
    "rope_local_base_freq": 10000.0,
    "partial_rotary_factor": 0.5,
    "rotary_dim": 8,
    # sliding windows, and tokens chosen out of many
    "sliding_window": 8,
    "sliding_window_size": 8,
    "attention_window_size": 8,
    "sliding_window_pattern": 2,
    "index_head_dim": 16,
    "index_n_heads": 2,
    "index_topk": 8,
    # latent attention
    "kv_lora_rank": 16,
    "q_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 16,
    # mixture of experts
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "num_experts_per_token": 2,
    "moe_topk": 2,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32,
    "moe_shared_expert_intermediate_size": 32,
    "shared_intermediate_size": 32,
    "n_shared_experts": 1,
    "num_shared_experts": 1,
    "norm_topk_prob": True,
    "routed_scaling_factor": 1.0,
    "scoring_func": "sigmoid",
    "topk_method": "noaux_tc",
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "num_dense_layers": 1,
    "moe_layer_freq": 1,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    # recurrent states
    "layer_group_size": 2,
    "group_norm_size": 1,
    "full_attention_interval": 4,
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "linear_conv_kernel_dim": 4,
    "mamba_num_heads": 4,
    "mamba_n_heads": 4,
    "mamba_head_dim": 16,
    "mamba_d_head": 16,
    "mamba_d_state": 16,
    "mamba_d_conv": 4,
    "mamba_n_groups": 1,
    "mamba_expand": 2,
    "mamba_conv_bias": True,
    "mamba_proj_bias": False,
    "state_size": 16,
    "ssm_state_size": 16,
    "n_groups": 1,
    "time_step_rank": "auto",
    "time_step_limit": (0.0, 100.0),
    "conv_kernel": 4,
    "conv_L_cache": 3,
    "conv_bias": False,
    "use_conv_bias": True,
}
"""Values for config fields by their names, of any config class that has them."""

_LONGCAT: dict[str, Any] = {
    "num_layers": 2,
    "attention_method": "MLA",
    "ffn_hidden_size": 96,
    "expert_ffn_hidden_size": 32,
    "zero_expert_num": 2,
    "zero_expert_type": "identity",
    "mla_scale_q_lora": True,
    "mla_scale_kv_lora": True,
}
_GEMMA4: dict[str, Any] = {
    "num_kv_shared_layers": 2,
    "vocab_size_per_layer_input": VOCAB,
    "hidden_size_per_layer_input": 8,
    "layer_types": _IN_TURN,
    "global_head_dim": 32,
    "partial_rotary_factor": 1.0,
}
_LFM2: dict[str, Any] = {
    "block_dim": HIDDEN,
    "block_ff_dim": 128,
    "block_multiple_of": 32,
    "block_ffn_dim_multiplier": 1.0,
    "block_auto_adjust_ff_dim": False,
    "full_attn_idxs": [2],
    "rope_theta": 1000000.0,
}
_LINEAR_ATTENTION = {
    "kda_layers": [1, 2, 4],
    "num_heads": 4,
    "head_dim": 16,
    "short_conv_kernel_size": 4,
}

CHANGES: dict[str, dict[str, Any]] = {
    "afm7": {
        "hidden_dim": HIDDEN,
        "num_kv_reuse_layers": 2,
        "hidden_dim_scale_factor": 2.0,
    },
    "afmoe": {"layer_types": _IN_TURN},
    "apertus": {"post_norm": False, "qk_norm": True},
    "baichuan_m1": {
        "tie_word_embeddings": False,
        "sliding_window_layers": [1, 3],
        "conv_window": 2,
    },
    "dbrx": {
        "ffn_config": {"ffn_hidden_size": 32, "moe_num_experts": 4, "moe_top_k": 2},
        "attn_config": {"kv_n_heads": 2, "clip_qkv": 8, "rope_theta": 10000.0},
    },
    "deepseek_v2": {
        "rope_scaling": {
            "type": "yarn",
            "factor": 2.0,
            "original_max_position_embeddings": 2048,
            "mscale": 0.7,
            "mscale_all_dim": 0.7,
            "beta_fast": 32,
            "beta_slow": 1,
        },
    },
    "deepseek_v3": {"num_hidden_layers": 3, "num_key_value_heads": 4},
    "deepseek_v41": {
        "o_groups": 2,
        "o_lora_rank": 16,
        "scoring_func": "sqrtsoftplus",
        "compress_ratios": [1, 4, 4, 0],
        "kv_source_layer_ids": [0, 1],
        "index_source_layer_ids": [0, 1],
        "candidate_source_layer_id": 1,
        "candidate_topk_blocks": 2,
        "candidate_block_size": 2,
        "index_topk": 4,
    },
    "ernie4_5_moe": {"moe_num_experts": 4, "moe_k": 2, "moe_num_shared_experts": 1},
    "exaone4": {"sliding_window_pattern": "LG", "rope_scaling": None},
    "exaone_moe": {"layer_types": _IN_TURN, "is_moe_layer": [False, True, True, True]},
    "falcon_h1": {
        "num_hidden_layers": 2,
        "intermediate_size": 128,
        "rms_norm_eps": 1e-5,
        "mamba_d_ssm": 64,
        "embedding_multiplier": 5.656854249492381,
        "lm_head_multiplier": 1.0,
    },
    "gear": {"layer_types": ["conv_mixer", _SLIDING, _FULL, _SLIDING]},
    "gemma3n": {
        "num_kv_shared_layers": 2,
        "vocab_size_per_layer_input": VOCAB,
        "hidden_size_per_layer_input": 8,
        "layer_types": _IN_TURN,
        "activation_sparsity_pattern": [0.5, 0.0, 0.0, 0.0],
        "altup_num_inputs": 2,
        "altup_coef_clip": 120.0,
        "altup_correct_scale": True,
        "altup_active_idx": 0,
        "laurel_rank": 8,
    },
    "gemma4": _GEMMA4,
    "gemma4_text": _GEMMA4,
    "glm_moe_dsa": {"rope_parameters": _ROPE},
    "glm4_moe": {"rope_scaling": None},
    "gpt2": {"n_layer": 2, "num_key_value_heads": 4},
    "gpt_neox": {
        "num_hidden_layers": 2,
        "num_key_value_heads": 4,
        "rotary_emb_base": 10000,
        "rotary_pct": 0.25,
    },
    "gpt_oss": {
        "num_hidden_layers": 2,
        "intermediate_size": HIDDEN,
        "layer_types": [_SLIDING, _FULL],
        "rope_theta": 150000,
        "rms_norm_eps": 1e-5,
    },
    "granite": {"rope_scaling": None},
    "granitemoehybrid": {"layer_types": ["mamba", "attention", "mamba", "mamba"]},
    "hunyuan": {
        "num_shared_expert": 1,
        "use_mixed_mlp_moe": True,
        "use_cla": True,
        "cla_share_factor": 2,
        "rope_scaling": {"factor": 1.0, "type": "dynamic", "alpha": 1000.0},
    },
    "iquestloopcoder": {"loop_window_size": 8},
    "jamba": {
        "attn_layer_offset": 1,
        "attn_layer_period": 2,
        "expert_layer_offset": 1,
        "expert_layer_period": 2,
    },
    "kimi_k3": {
        "num_key_value_heads": 4,
        "linear_attn_config": _LINEAR_ATTENTION,
        "attn_res_block_size": 2,
        "activation_situ_beta": 1.0,
        "activation_situ_linear_beta": 2.0,
    },
    "kimi_linear": {"linear_attn_config": _LINEAR_ATTENTION, "model_max_length": 4096},
    "laguna": {
        "layer_types": _IN_TURN,
        "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"],
    },
    "lfm2": _LFM2,
    "lfm2-vl": _LFM2,
    "lfm2_moe": {"use_expert_bias": True, "full_attn_idxs": [2]},
    "lille-130m": {"block_size": 4096, "n_kv_heads": 2},
    "llama4": {
        "rope_scaling": None,
        "attention_chunk_size": 8,
        "interleave_moe_layer_step": 2,
        "intermediate_size_mlp": 96,
        "num_experts_per_tok": 1,
        "num_local_experts": 2,
    },
    "llama4_text": {"intermediate_size_mlp": 96, "no_rope_layers": [1, 0, 1, 0]},
    "longcat_flash": _LONGCAT,
    "longcat_flash_ngram": {
        **_LONGCAT,
        "ngram_vocab_size_ratio": 2,
        "emb_neighbor_num": 3,
        "emb_split_num": 2,
    },
    "mamba": {"num_hidden_layers": 2, "intermediate_size": 128},
    "mamba2": {"num_hidden_layers": 2},
    "mellum": {"layer_types": _IN_TURN, "rope_parameters": {_SLIDING: _ROPE, _FULL: _ROPE}},
    "mimo_v2_flash": {
        "hybrid_layer_pattern": [1, 0, 1, 0],
        "moe_layer_freq": [0, 1, 1, 1],
        "add_swa_attention_sink_bias": True,
        "add_full_attention_sink_bias": False,
        "swa_rope_theta": 10000.0,
        "swa_num_attention_heads": 4,
        "swa_num_key_value_heads": 2,
        "swa_head_dim": 16,
        "swa_v_head_dim": 16,
    },
    "minicpm": {"dim_model_base": 32, "scale_depth": 1.4, "scale_emb": 2.0},
    "minicpm3": {
        "dim_model_base": 32,
        "scale_depth": 1.4,
        "scale_emb": 2.0,
        "rope_scaling": {
            "original_max_position_embeddings": 4096,
            "short_factor": [1.0] * 4,
            "long_factor": [1.0] * 4,
        },
    },
    "minimax_m3_vl": {
        "intermediate_size": 32,
        "dense_intermediate_size": 96,
        "moe_layer_freq": [0, 1, 1, 1],
        "layer_types": [_FULL, "sparse", "sparse", "sparse"],
        "index_block_size": 4,
        "index_topk_blocks": 2,
    },
    "ministral3": {"layer_types": _IN_TURN, "rope_parameters": _ROPE_SCALED_BY_POSITION},
    "mistral4": {"num_key_value_heads": 4, "rope_parameters": _ROPE_SCALED_BY_POSITION},
    "nanbeige": {"num_loops": 2},
    "nemotron": {"hidden_act": "relu2"},
    "nemotron-nas": {
        "block_configs": [
            {"attention": {"n_heads_in_group": 2}, "ffn": {"ffn_mult": 1.0}},
            {"attention": {"no_op": True}, "ffn": {"ffn_mult": 1.0}},
            {"attention": {"n_heads_in_group": 4}, "ffn": {"no_op": True}},
            {"attention": {"replace_with_linear": True}, "ffn": {"replace_with_linear": True}},
        ],
    },
    "nemotron_h": {"intermediate_size": HIDDEN, "hybrid_override_pattern": ["M", "-", "*", "M"]},
    "olmo_hybrid": {"linear_allow_neg_eigval": True},
    "openelm": {
        "num_transformer_layers": 2,
        "model_dim": HIDDEN,
        "num_query_heads": [2, 4],
        "num_kv_heads": [1, 2],
        "ffn_dim_divisor": 32,
        "ffn_multipliers": [1.0, 1.5],
    },
    "phi3": {"num_key_value_heads": 4, "partial_rotary_factor": 1.0},
    # Its forward writes to ids of the released vocabulary.
    "phi3small": {
        "vocab_size": 100352,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "ff_intermediate_size": 96,
        "gegelu_limit": 20.0,
        "dense_attention_every_n_layers": 2,
        "blocksparse_block_size": 32,
        "blocksparse_num_local_blocks": 2,
        "blocksparse_vert_stride": 2,
    },
    "phixtral": {"num_vocab": VOCAB, "model_dim": HIDDEN, "num_layers": 2},
    "plamo": {"n_shared_head": 2},
    "plamo2": {"hidden_size_per_head": 16, "mamba_step": 2},
    "prism_hadamard_qwen35": {
        "text_config": {},
        "num_experts": 0,
        "intermediate_size": 512,
        "tensor_namespace": "mlx-vlm-qwen3_5",
        "quantization": {"bits": 2, "group_size": 128, "mode": "affine"},
        "modules": [
            {
                "path": "model.layers.0.mlp.down_proj",
                "embedding": False,
                "dtype": "float16",
                "block": 512,
            },
        ],
    },
    "qwen": {"kv_channels": 16},
    "qwen3": {"tie_word_embeddings": False},
    "qwen3_5": {"num_experts": 0},
    "qwen3_next": {"partial_rotary_factor": 0.25},
    "recurrent_gemma": {
        "num_hidden_layers": 3,
        "num_key_value_heads": 1,
        "intermediate_size": 128,
        "logits_soft_cap": 30.0,
        "conv1d_width": 4,
        "block_types": ["recurrent", "recurrent", "attention"],
    },
    "rwkv7": {
        "num_hidden_layers": 2,
        "intermediate_size": 128,
        "tie_word_embeddings": False,
        "a_low_rank_dim": 8,
        "v_low_rank_dim": 8,
        "gate_low_rank_dim": 8,
        "decay_low_rank_dim": 8,
    },
    "spark2_5": {"rope_parameters": {_SLIDING: _ROPE, _FULL: _ROPE}},
    "step3p5": {
        "layer_types": _IN_TURN,
        "num_attention_groups": 2,
        "moe_num_experts": 4,
        "moe_top_k": 2,
        "share_expert_dim": 32,
        "moe_layers_enum": "1,2,3",
    },
}
"""What a model file needs beside ``SIZES``, or instead of them."""

UNTRIED = {
    "bitnet": "its layers are kernels for Metal",
    "muse_spark": "its attention is a kernel for Metal",
    "olmo": "it needs the package `ai2-olmo`",
}
"""Model files that mlx-lm itself cannot run on every machine, and why."""


ROUNDED_BY: dict[str, frozenset[str]] = {
    # A step reads the ring where it was written, a window reads it in the order of time.
    "wrapped ring": frozenset(
        {
            *("afmoe", "baichuan_m1", "cohere2", "exaone4", "exaone_moe", "gear", "gemma3"),
            *("gemma3_text", "gemma3n", "gemma4", "gemma4_text", "gpt_oss", "iquestloopcoder"),
            *("laguna", "mellum", "mimo_v2_flash", "ministral3", "muse_glimmer", "olmo3"),
            *("recurrent_gemma", "spark2_5", "step3p5"),
        }
    ),
    # A step multiplies queries by what a window multiplies keys and values by.
    "latent attention": frozenset(
        {
            *("bailing_hybrid", "bailing_moe_v3", "deepseek_v3", "deepseek_v32", "glm4_moe_lite"),
            *("glm_moe_dsa", "kimi_k25", "kimi_k3", "kimi_linear", "kimi_vl", "longcat_flash"),
            *("longcat_flash_ngram", "mistral4"),
        }
    ),
    # A step updates the state, a window sums over its ids.
    "scan": frozenset({"falcon_h1", "granitemoehybrid", "mamba2", "nemotron_h", "plamo2"}),
    # A window gathers as many keys for each id as the widest of them needs.
    "chosen keys": frozenset({"deepseek_v41"}),
}
"""Why one forward of several ids and several forwards of one add up in another order, and where.
Logits then differ by up to ``ROUNDING``; those of all other architectures are equal bit by bit
(CPU, fp32, the BLAS of the wheel)."""
ROUNDED = frozenset[str]().union(*ROUNDED_BY.values())
ROUNDING = 3e-5

UNEQUAL = {
    "phi3small": "ids of one forward see those that come after them",
    "plamo3": "in one forward, sliding windows are one token wider",
}
"""Where the model file itself computes something else for several ids than for one: not rounding.
Nothing can be verified then, and mlxfill finds that out when the model is loaded."""

_DEFINES = re.compile(r"^class Model\(|^from \S+ import .*\bModel\b", re.MULTILINE)


@cache
def model_files() -> tuple[str, ...]:
    """Names of the installed mlx-lm's files that define a model, sorted: its ``model_type``s."""
    spec = importlib.util.find_spec("mlx_lm.models")
    folders = spec.submodule_search_locations if spec else None
    files = [file for folder in folders or () for file in Path(folder).glob("*.py")]
    return tuple(sorted(f.stem for f in files if _DEFINES.search(f.read_text("utf-8"))))


def config_of(name: str, **changes: Any) -> dict[str, Any]:  # noqa: ANN401
    """The config of a tiny model of mlx-lm's file ``name``, with ``changes``.

    Raises ``KeyError`` for a name that is none of ``model_files``.
    """
    if name not in model_files():
        raise KeyError(name)
    made: Any = importlib.import_module(f"mlx_lm.models.{name}").ModelArgs
    known = {field.name for field in fields(made)}
    own = CHANGES.get(name, {})
    values = {**SIZES, **own, **changes, "model_type": name}
    if "text_config" not in known:
        return {key: value for key, value in values.items() if key in known}
    if "text_config" in own or _takes_sizes_nested_only(made):
        return {**values, "text_config": {**values}}
    return values


def _takes_sizes_nested_only(made: type) -> bool:
    """Whether a config class with ``text_config`` has no way of its own to read flat configs."""
    from mlx_lm.models.base import BaseModelArgs

    return inspect.getattr_static(made, "from_dict") is vars(BaseModelArgs)["from_dict"]
