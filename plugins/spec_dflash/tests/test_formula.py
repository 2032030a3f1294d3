"""A block is what the papers say, whatever of its context came in which way."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from numpy.typing import NDArray

from mlxfill import Sampling
from mlxfill.sampling import Chooser
from mlxfill_spec_dflash.provider import load_provider

Array = NDArray[np.float64]
Weights = Mapping[str, Array]
KINDS = [
    *("dflash", "dflash sliding", "dflash2"),
    *("dspark", "dspark after the anchor", "dspark of speculators"),
]

LENGTH, DEPTH = 11, 4


def reference(folder: Path, target: Any, states: mx.array, anchor: int) -> list[int]:
    published: Any = mx.load(str(folder / "model.safetensors"))
    weights = {name: np.array(array, np.float64) for name, array in published.items()}
    embedding = np.array(target.embed(mx.arange(target.vocab_size)[None])[0], np.float64)
    eye = mx.eye(target.hidden_size)[None]
    head = np.array(target.project(eye)[0], np.float64).T
    weights = {"embed_tokens.weight": embedding, "lm_head.weight": head, **weights}
    config = json.loads((folder / "config.json").read_text("utf-8"))
    ids, _ = drafted(config, weights, np.array(states[0], np.float64), anchor, DEPTH)
    return ids


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("told", ["at once", "in parts", "between drafts"])
def test_a_block_is_what_the_papers_say(
    folders: dict[str, Path], target: Any, kind: str, told: str
) -> None:
    provider = load_provider(folders[kind], target)
    rows = provider.open(target, [Chooser(Sampling(seed=1))], [None])
    for seed in range(3):
        rows.append([Chooser(Sampling(seed=1))], [None])
        rows.keep([1] if seed else [0])
        states = mx.random.normal((1, LENGTH, 128), key=mx.random.key(seed))
        ids = mx.zeros((1, LENGTH), mx.int32)
        parts = {"at once": [LENGTH], "in parts": [4, 1, 6], "between drafts": [5, 3, 3]}[told]
        start = 0
        for part in parts:
            if start == 0:
                rows.prefill(ids[:, :part], states[:, :part])
            elif told == "between drafts":
                rows.draft([9], DEPTH, [start + 1])
                rows.commit([[7] * part], states[:, start : start + part])
            else:
                rows.consume(ids[:, :part], [part], states[:, start : start + part])
            start += part
        guessed: Any = rows.draft([33], DEPTH, [LENGTH + 1]).tolist()
        assert guessed[0] == reference(folders[kind], target, states, 33)


# --- one block in float64, without a cache, one slot at a time --------------------------------
#
# DFlash (arXiv 2602.06036): target states of several layers are projected and normed; each layer
# makes keys and values of them as it does of its own block.  DFlash2 adds a causal convolution
# around attention and MLP, whose kernels depend on the states, and a selector over the likeliest
# ids; DSpark adds w2(w1[token before]) to the logits of a slot.  Rotary positions: Su et al. 2021.


def drafted(
    config: Mapping[str, Any], weights: Weights, states: Array, anchor: int, depth: int
) -> tuple[list[int], Array]:
    """The greedy ids after ``anchor``, and the logits of each slot before neighbours agree.

    ``states`` ``[T, n * H]``: of all tokens before ``anchor``.  ``weights`` hold the embedding
    and the head as ``embed_tokens.weight`` and ``lm_head.weight``.
    """
    layer = config.get("transformer_layer_config", {})
    config = {**layer, **config, **config.get("dflash_config", {})}
    speculators = bool(layer)
    dspark = "markov_head.markov_w1.weight" in weights
    skipped = int(not dspark or speculators or not config.get("sample_from_anchor", True))
    ids = [anchor, *[config["mask_token_id"]] * (depth + skipped - 1)]
    hidden = block_states(config, weights, states, ids)[skipped:]
    logits = hidden @ weights["lm_head.weight"].T
    if dspark:
        return markov(weights, logits, anchor), logits
    if "candidate_selector.hidden_projection.weight" in weights:
        return selected(config, weights, hidden, logits, anchor), logits
    return [int(each) for each in logits.argmax(-1)], logits


def block_states(
    config: Mapping[str, Any], weights: Weights, states: Array, ids: list[int]
) -> Array:
    """``[S, H]`` after the last norm."""
    eps = config["rms_norm_eps"]
    context = norm(states @ weights["fc.weight"].T, weights["hidden_norm.weight"], eps)
    x = weights["embed_tokens.weight"][ids]
    for number in range(config["num_hidden_layers"]):
        at = f"layers.{number}."
        part = {k.removeprefix(at): v for k, v in weights.items() if k.startswith(at)}
        h = norm(x, part["input_layernorm.weight"], eps)
        h, after = convolved(config, part, "attention_conv", h)
        h = attention(config, part, number, h, context)
        x = x + finished(config, part, "attention_conv", h, after)
        h = norm(x, part["post_attention_layernorm.weight"], eps)
        h, after = convolved(config, part, "mlp_conv", h)
        gate = h @ part["mlp.gate_proj.weight"].T
        up = h @ part["mlp.up_proj.weight"].T
        h = (gate / (1 + np.exp(-gate)) * up) @ part["mlp.down_proj.weight"].T
        x = x + finished(config, part, "mlp_conv", h, after)
    return norm(x, weights["norm.weight"], eps)


def attention(
    config: Mapping[str, Any], part: Weights, number: int, h: Array, context: Array
) -> Array:
    heads, groups = config["num_attention_heads"], config["num_key_value_heads"]
    eps, dim = config["rms_norm_eps"], config["head_dim"]
    kind = config.get("layer_types", ["full_attention"] * (number + 1))[number]
    sliding, before = kind == "sliding_attention", len(context)
    both = np.concatenate([context, h])
    q = (h @ part["self_attn.q_proj.weight"].T).reshape(len(h), heads, dim)
    k = (both @ part["self_attn.k_proj.weight"].T).reshape(len(both), groups, dim)
    v = (both @ part["self_attn.v_proj.weight"].T).reshape(len(both), groups, dim)
    q = norm(q, part["self_attn.q_norm.weight"], eps)
    k = norm(k, part["self_attn.k_norm.weight"], eps)
    out = np.zeros((len(h), heads, dim))
    for slot in range(len(h)):
        query = before + slot
        seen = [
            key
            for key in range(len(both))
            if not sliding or (key <= query and query - key < config["sliding_window"])
        ]
        for head in range(heads):
            group = head * groups // heads
            turned = rotated(config, q[slot, head], query)
            scores = np.array([turned @ rotated(config, k[key, group], key) for key in seen])
            shares = np.exp((scores - scores.max()) / np.sqrt(dim))
            out[slot, head] = shares / shares.sum() @ v[seen, group]
    return out.reshape(len(h), -1) @ part["self_attn.o_proj.weight"].T


def rotated(config: Mapping[str, Any], x: Array, position: int) -> Array:
    """Halves of ``[D]`` turned by the position."""
    half = len(x) // 2
    angle = position * config["rope_theta"] ** (-np.arange(half) / half)
    a, b = x[:half], x[half:]
    turned = [a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)]
    return np.concatenate(turned)


def norm(x: Array, weight: Array, eps: float) -> Array:
    scaled: Array = x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight
    return scaled


def convolved(
    config: Mapping[str, Any], part: Weights, name: str, h: Array
) -> tuple[Array, Array | None]:
    """The states convolved and the kernels for afterwards; as they are without a convolution."""
    if f"{name}.base_kernel" not in part:
        return h, None
    taps, groups = config["conv_kernel_size"], h.shape[1] // config["conv_group_size"]
    dynamic = (h @ part[f"{name}.kernel_projection.weight"].T).reshape(len(h), 2, taps, groups)
    return convolution(h, part[f"{name}.base_kernel"][0], dynamic[:, 0]), dynamic[:, 1]


def finished(
    config: Mapping[str, Any], part: Weights, name: str, h: Array, kernels: Array | None
) -> Array:
    assert config
    return h if kernels is None else convolution(h, part[f"{name}.base_kernel"][1], kernels)


def convolution(h: Array, base: Array, dynamic: Array) -> Array:
    out, each = np.zeros_like(h), h.shape[1] // dynamic.shape[2]
    for slot in range(len(h)):
        for tap in range(min(len(base), slot + 1)):
            out[slot] += (base[tap] + np.repeat(dynamic[slot, tap], each)) * h[slot - tap]
    return out


def markov(weights: Weights, logits: Array, anchor: int) -> list[int]:
    before, drafts = anchor, []
    for slot in logits:
        bias = (
            weights["markov_head.markov_w2.weight"]
            @ weights["markov_head.markov_w1.weight"][before]
        )
        before = int((slot + bias).argmax())
        before += int(weights["d2t"][before]) if "d2t" in weights else 0
        drafts.append(before)
    return drafts


def selected(
    config: Mapping[str, Any], weights: Weights, hidden: Array, logits: Array, anchor: int
) -> list[int]:
    name = "candidate_selector."
    before, drafts = anchor, []
    for state, slot in zip(hidden, logits, strict=True):
        wanted = weights[f"{name}hidden_projection.weight"] @ state
        wanted = wanted * weights[f"{name}predecessor_codebook"][before]
        among = slot.argsort()[-config["selector_top_k"] :]
        scores = slot[among] + weights[f"{name}successor_codebook"][among] @ wanted
        before = int(among[scores.argmax()])
        drafts.append(before)
    return drafts
