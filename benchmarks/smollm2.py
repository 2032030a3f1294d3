"""Turn the GGUF of SmolLM2-135M-Instruct into a folder that mlx-lm loads.

The GGUF holds Q4_1 blocks (the embedding Q8_0).  Full-precision folders dequantize them;
the 4-bit folder keeps the very codes, so nothing is rounded a second time.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import mlx.core as mx
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

Tensors = dict[str, mx.array]

GROUP_SIZE = 32
"""Weights that share one scale in the GGUF's blocks."""

CONTROL_TOKEN = 3
"""GGUF's type number of special tokens."""

BLOCK_PARTS = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}
WHOLE_PARTS = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}


@dataclass(frozen=True)
class Precision:
    """How weights are stored: their dtype, and 4 bits (the GGUF's codes) or None (dense)."""

    dtype: mx.Dtype
    bits: int | None = None


PRECISIONS = {
    "fp32": Precision(mx.float32),
    "bf16": Precision(mx.bfloat16),
    "4bit": Precision(mx.float32, bits=4),
}


class Metadata:
    """The GGUF's key-value table with plain Python scalars."""

    def __init__(self, raw: Mapping[str, Any]) -> None:
        self._raw = raw

    def scalar(self, key: str) -> Any:  # noqa: ANN401 - int, float or str, as the key has it
        """Unwrap the value under ``key`` from its array."""
        value = self._raw[key]
        return value.item() if isinstance(value, mx.array) else value

    def strings(self, key: str) -> list[str]:
        """List the strings under ``key``."""
        return list(self._raw[key])

    def integers(self, key: str) -> list[int]:
        """List the integers under ``key``."""
        return [int(value) for value in self._raw[key].tolist()]


def convert(gguf: Path, out: Path, precision: Precision) -> None:
    """Read ``gguf``, write the model folder ``out`` (which must exist)."""
    tensors, meta = read(gguf)
    weights, odd_bits = convert_weights(tensors, meta, precision)
    mx.save_safetensors(str(out / "model.safetensors"), weights, metadata={"format": "mlx"})

    config = model_config(meta, precision, tied="lm_head.weight" not in weights)
    if precision.bits is not None:
        config["quantization"] = {"group_size": GROUP_SIZE, "bits": precision.bits, **odd_bits}
    tokenizer, special = build_tokenizer(meta)
    tokenizer.save(str(out / "tokenizer.json"))
    write_json(out / "config.json", config)
    write_json(out / "generation_config.json", generation_config(meta))
    write_json(out / "tokenizer_config.json", tokenizer_config(meta, special))


def read(gguf: Path) -> tuple[Tensors, Metadata]:
    """Load the tensors, still packed, and the metadata."""
    # mlx declares one return type for all of its file formats.
    tensors, table = cast(
        "tuple[Tensors, dict[str, Any]]", mx.load(str(gguf), format="gguf", return_metadata=True)
    )
    return tensors, Metadata(table)


def convert_weights(
    tensors: Tensors, meta: Metadata, precision: Precision
) -> tuple[Tensors, dict[str, dict[str, int]]]:
    """All weights under Hugging Face names, and the layers with another bit width than asked."""
    heads = {
        "attn_q": meta.scalar("llama.attention.head_count"),
        "attn_k": meta.scalar("llama.attention.head_count_kv"),
    }
    grouped: dict[str, Tensors] = {}
    for key, value in tensors.items():
        stem, kind = key.rsplit(".", 1)
        grouped.setdefault(stem, {})[kind] = value

    weights: Tensors = {}
    odd_bits: dict[str, dict[str, int]] = {}
    for stem, stored in grouped.items():
        part = stem.rsplit(".", 1)[-1]
        parts = stored
        if part in heads:
            parts = {kind: unpermute(rows, heads[part]) for kind, rows in stored.items()}
        name = hugging_face_name(stem)
        bits = packed_bits(parts)
        if bits is not None and precision.bits is not None and bits != precision.bits:
            odd_bits[name] = {"group_size": GROUP_SIZE, "bits": bits}
        for kind, value in convert_layer(parts, bits, precision).items():
            weights[f"{name}.{kind}"] = value
    mx.eval(weights)
    return weights, odd_bits


def packed_bits(parts: Tensors) -> int | None:
    """Bits a weight of a packed layer, None of a dense one (the norms)."""
    if "scales" not in parts:
        return None
    return parts["weight"].shape[-1] * 32 // (parts["scales"].shape[-1] * GROUP_SIZE)


def convert_layer(parts: Tensors, bits: int | None, precision: Precision) -> Tensors:
    """One layer's arrays as they go to the file."""
    if bits is None:
        return {"weight": parts["weight"].astype(precision.dtype)}
    if precision.bits is None:
        scales, biases = (parts[kind].astype(mx.float32) for kind in ("scales", "biases"))
        dense = mx.dequantize(parts["weight"], scales, biases, group_size=GROUP_SIZE, bits=bits)
        return {"weight": dense.astype(precision.dtype)}
    return {
        "weight": parts["weight"],
        "scales": parts["scales"].astype(precision.dtype),
        "biases": parts["biases"].astype(precision.dtype),
    }


def unpermute(rows: mx.array, heads: int) -> mx.array:
    """Put the rows of q or k back into the order that rotates halves, not neighbours.

    Whole rows move, so it holds for packed weights, scales and biases alike.
    """
    half = rows.shape[0] // heads // 2
    return rows.reshape(heads, half, 2, -1).swapaxes(1, 2).reshape(rows.shape)


def hugging_face_name(stem: str) -> str:
    """``blk.3.attn_q`` to ``model.layers.3.self_attn.q_proj``."""
    if stem in WHOLE_PARTS:
        return WHOLE_PARTS[stem]
    _, layer, part = stem.split(".")
    return f"model.layers.{layer}.{BLOCK_PARTS[part]}"


def build_tokenizer(meta: Metadata) -> tuple[Tokenizer, list[str]]:
    """Byte-level BPE that splits digits one by one, and its special tokens."""
    kind = (meta.scalar("tokenizer.ggml.model"), meta.scalar("tokenizer.ggml.pre"))
    if kind != ("gpt2", "smollm"):
        raise SystemExit(f"the GGUF's tokenizer is {kind}, this script knows ('gpt2', 'smollm')")
    tokens = meta.strings("tokenizer.ggml.tokens")
    types = meta.integers("tokenizer.ggml.token_type")
    pairs = [merge.split(" ") for merge in meta.strings("tokenizer.ggml.merges")]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[(a, b) for a, b in pairs]))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    special = [t for t, kind_ in zip(tokens, types, strict=True) if kind_ == CONTROL_TOKEN]
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in special])
    return tokenizer, special


def model_config(meta: Metadata, precision: Precision, *, tied: bool) -> dict[str, Any]:
    """Say what mlx-lm must know to build the model."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": meta.scalar("llama.embedding_length"),
        "intermediate_size": meta.scalar("llama.feed_forward_length"),
        "num_hidden_layers": meta.scalar("llama.block_count"),
        "num_attention_heads": meta.scalar("llama.attention.head_count"),
        "num_key_value_heads": meta.scalar("llama.attention.head_count_kv"),
        "rms_norm_eps": round(meta.scalar("llama.attention.layer_norm_rms_epsilon"), 12),
        "rope_theta": meta.scalar("llama.rope.freq_base"),
        "rope_traditional": False,
        "max_position_embeddings": meta.scalar("llama.context_length"),
        "vocab_size": meta.scalar("llama.vocab_size"),
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": tied,
        "bos_token_id": meta.scalar("tokenizer.ggml.bos_token_id"),
        "eos_token_id": meta.scalar("tokenizer.ggml.eos_token_id"),
        "pad_token_id": meta.scalar("tokenizer.ggml.padding_token_id"),
        "torch_dtype": str(precision.dtype).removeprefix("mlx.core."),
    }


def generation_config(meta: Metadata) -> dict[str, Any]:
    """Both ends count: the chat turn's, and ``<|endoftext|>`` (id 0) of plain continuations."""
    return {
        "bos_token_id": meta.scalar("tokenizer.ggml.bos_token_id"),
        "eos_token_id": [meta.scalar("tokenizer.ggml.eos_token_id"), 0],
        "pad_token_id": meta.scalar("tokenizer.ggml.padding_token_id"),
    }


def tokenizer_config(meta: Metadata, special: list[str]) -> dict[str, Any]:
    """Name the special tokens and hand on the chat template that the GGUF carries."""
    tokens = meta.strings("tokenizer.ggml.tokens")
    bos, eos, pad, unknown = (
        tokens[meta.scalar(f"tokenizer.ggml.{name}_token_id")]
        for name in ("bos", "eos", "padding", "unknown")
    )
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": bos,
        "eos_token": eos,
        "pad_token": pad,
        "unk_token": unknown,
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": meta.scalar("llama.context_length"),
        "additional_special_tokens": [t for t in special if t not in (bos, eos)],
        "chat_template": meta.scalar("tokenizer.chat_template").replace("\r", ""),
    }


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write readable JSON."""
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
