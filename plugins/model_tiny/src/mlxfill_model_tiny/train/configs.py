"""The shapes of the models and the ``config.json`` files that describe them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokenizers import Tokenizer

END_OF_TURN, PADDING = "<|im_end|>", "<|endoftext|>"

TARGET: dict[str, Any] = {
    "model_type": "qwen3_5_text",
    "hidden_size": 128,
    "intermediate_size": 384,
    "num_hidden_layers": 4,
    "full_attention_interval": 4,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 4,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 32,
    "linear_conv_kernel_dim": 4,
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 32768,
    "tie_word_embeddings": True,
    "attention_bias": False,
    "rope_parameters": {
        "type": "default",
        "rope_theta": 10000.0,
        "partial_rotary_factor": 0.25,
        "mrope_section": [3, 3, 2],
    },
}
"""Three gated-DeltaNet layers and one of full attention."""

DRAFT: dict[str, Any] = {
    "model_type": "qwen3",
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 64,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "max_position_embeddings": 32768,
    "tie_word_embeddings": True,
}

DFLASH: dict[str, Any] = {
    "model_type": "qwen3",
    "hidden_size": TARGET["hidden_size"],
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "max_position_embeddings": 32768,
    "tie_word_embeddings": True,
    "attention_bias": False,
    "block_size": 8,
    "num_target_layers": TARGET["num_hidden_layers"],
}
"""A block drafter that reads the first layer but one and the last of the target."""


def target_config(tokenizer: Tokenizer) -> dict[str, Any]:
    """``config.json`` of the target, in the two-level form of Qwen3.5 releases."""
    interval = TARGET["full_attention_interval"]
    kinds = [
        "linear_attention" if layer % interval else "full_attention"
        for layer in range(1, TARGET["num_hidden_layers"] + 1)
    ]
    text = {**TARGET, **_vocabulary(tokenizer), "layer_types": kinds}
    return {
        "architectures": ["Qwen3_5ForConditionalGeneration"],
        "model_type": "qwen3_5",
        "tie_word_embeddings": TARGET["tie_word_embeddings"],
        "eos_token_id": text["eos_token_id"],
        "text_config": text,
    }


def draft_config(tokenizer: Tokenizer) -> dict[str, Any]:
    """``config.json`` of the draft model."""
    return {"architectures": ["Qwen3ForCausalLM"], **DRAFT, **_vocabulary(tokenizer)}


def mtp_config(target_text_config: dict[str, Any]) -> dict[str, Any]:
    """``config.json`` of an MTP head for the target with this ``text_config``."""
    text = {key: value for key, value in target_text_config.items() if key != "layer_types"}
    return {
        "architectures": ["Qwen3_5MTPDraftModel"],
        "model_type": "qwen3_5_mtp",
        "block_size": 3,
        "tie_word_embeddings": text["tie_word_embeddings"],
        "text_config": {**text, "mtp_num_hidden_layers": 1, "mtp_use_dedicated_embeddings": False},
    }


def dflash_config(tokenizer: Tokenizer) -> dict[str, Any]:
    """``config.json`` of a block drafter for the target; padding is its mask."""
    vocabulary = _vocabulary(tokenizer)
    reads = {"mask_token_id": vocabulary["pad_token_id"], "target_layer_ids": [1, 3]}
    return {
        "architectures": ["DFlashDraftModel"],
        **DFLASH,
        **vocabulary,
        "dflash_config": reads,
    }


def _vocabulary(tokenizer: Tokenizer) -> dict[str, Any]:
    ends = [tokenizer.token_to_id(token) for token in (END_OF_TURN, PADDING)]
    return {
        "vocab_size": tokenizer.get_vocab_size(),
        "eos_token_id": ends,
        "bos_token_id": None,
        "pad_token_id": ends[1],
    }
