"""``config.json`` of a block drafter, in each form in which such drafters are published.

All are a config of Qwen3 with more keys, beside it or in ``dflash_config``; vLLM's speculators
have it in ``transformer_layer_config``.  Facts from the reference implementations: DFlash and
DFlash2 (arXiv 2602.06036, github.com/z-lab/dflash), DSpark (github.com/deepseek-ai/DeepSpec),
github.com/vllm-project/speculators.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from attrs import frozen

from mlxfill import DrafterError, folder_format

Method = Literal["dflash", "dflash2", "dspark"]
FULL, SLIDING = "full_attention", "sliding_attention"
ARCHITECTURES: Mapping[str, Method] = {
    "DFlashDraftModel": "dflash",
    "DFlash2DraftModel": "dflash2",
    "DSparkDraftModel": "dspark",
    "Qwen3DSparkModel": "dspark",
    "Lfm2DSparkDraftModel": "dspark",
}
BACKBONES = ("qwen3", "dflash", "dflash2", "dspark")
"""Values of ``model_type``: all name layers of Qwen3."""
NESTED, SPECULATORS = "dflash_config", "transformer_layer_config"
SIZES = (
    *("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"),
    *("num_key_value_heads", "vocab_size"),
)
NEEDED = (*SIZES, "rms_norm_eps", "mask_token_id", "target_layer_ids", "block_size")


@frozen
class DrafterConfig:
    """What a drafter is built from.

    ``drafts``: most tokens of a block, the token that they follow not counted.
    ``from_anchor``: the first of them is read off that token's own slot (DSpark), else off the
    first mask (DFlash).  ``draft_vocab_size``: how many ids it can draft.  ``causal``: by layer,
    whether a slot sees the ones after it; ``windows``: by layer, how far back it sees, None: all.
    """

    method: Method
    hidden_size: int
    intermediate_size: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab_size: int
    draft_vocab_size: int
    norm_eps: float
    mask_id: int
    target_layers: tuple[int, ...]
    drafts: int
    from_anchor: bool
    causal: tuple[bool, ...]
    windows: tuple[int | None, ...]
    rope: Mapping[str, Any]
    target_layer_count: int | None = None
    attention_bias: bool = False
    sinks: bool = False
    softcap: float | None = None
    embedding_scale: float = 1.0
    output_scale: float = 1.0
    markov_rank: int = 0
    kernel_size: int = 0
    group_size: int = 0
    selector_rank: int = 0
    selector_top_k: int = 0


def method_of(config: Mapping[str, Any]) -> Method | None:
    """The method of a published config; None for one that this plugin does not load."""
    if SPECULATORS in config:
        named_so = config.get("speculators_model_type")
        layer = config[SPECULATORS]
        fits = isinstance(layer, dict) and layer.get("model_type", "qwen3") in BACKBONES
        return named_so if fits and named_so in {"dflash", "dspark"} else None
    if config.get("model_type") not in BACKBONES:
        return None
    names = config.get("architectures")
    listed = names if isinstance(names, list) else []
    named = [ARCHITECTURES[name] for name in listed if name in ARCHITECTURES]
    inside = _nested(config)
    if inside.get("projector_type") == "dspark" or inside.get("markov_rank"):
        return "dspark"
    if not names and inside:
        return "dflash"
    return named[0] if named else None


def is_known(folder: Path) -> bool:
    """Whether a folder holds a drafter of this family."""
    try:
        return method_of(read_json(folder / "config.json")) is not None
    except DrafterError:
        return False


def read_config(folder: Path) -> DrafterConfig:
    """The config of the drafter in ``folder``.

    :raises DrafterError: it is missing, broken, or that of something else; names file and key.
    """
    file = folder / "config.json"
    config = read_json(file)
    method = method_of(config)
    if method is None:
        raise DrafterError(
            f"{file}: model_type {config.get('model_type')!r} with architectures"
            f" {config.get('architectures')!r} is no drafter that this plugin knows; {folder} is"
            f" {folder_format(folder).name}"
        )
    known = _flat(config)
    missing = [name for name in NEEDED if known.get(name) is None]
    if missing:
        raise DrafterError(f"{file} lacks {missing[0]!r}, which a {method} drafter needs")
    try:
        return _built(method, known)
    except (TypeError, ValueError, KeyError) as error:
        raise DrafterError(f"{file}: {' '.join(str(error).split())}") from error


def read_json(file: Path) -> dict[str, Any]:
    """A JSON object.  Raises ``DrafterError`` that names the file."""
    try:
        content = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DrafterError(f"{file} cannot be read: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict):
        raise DrafterError(f"{file} holds no JSON object")
    return content


def _flat(config: Mapping[str, Any]) -> dict[str, Any]:
    """All keys side by side.  Blocks of speculators count the token that they follow, and drafts
    begin behind it.
    """
    if SPECULATORS not in config:
        return {**config, **_nested(config)}
    reads = {"target_layer_ids": config.get("aux_hidden_state_layer_ids")}
    anchored = {"dspark_bonus_anchor": True, "sample_from_anchor": False}
    return {**anchored, **config[SPECULATORS], **config, **reads}


def _nested(config: Mapping[str, Any]) -> Mapping[str, Any]:
    inside = config.get(NESTED)
    return inside if isinstance(inside, dict) else {}


def _built(method: Method, known: Mapping[str, Any]) -> DrafterConfig:
    """Raises ``ValueError`` and the like for values that make no sense."""
    for name in SIZES:
        if int(known[name]) < 1:
            message = f"{name} must be at least 1, not {known[name]}"
            raise ValueError(message)
    heads, layers = int(known["num_attention_heads"]), int(known["num_hidden_layers"])
    from_anchor = _from_anchor(method, known)
    vocab_size, mask_id = int(known["vocab_size"]), int(known["mask_token_id"])
    if not 0 <= mask_id < vocab_size:
        message = f"mask_token_id {mask_id} is no id of a vocabulary of {vocab_size}"
        raise ValueError(message)
    target_layers = tuple(int(layer) for layer in known["target_layer_ids"])
    if not target_layers:
        raise ValueError("target_layer_ids must name layers of the target, not []")
    kinds = _kinds(known, layers)
    causal = known.get("causal", known.get("dflash_query_causal", known.get("is_causal")))
    window = int(known.get("sliding_window") or known.get("swa_window_size") or 0)
    if SLIDING in kinds and not window:
        raise ValueError("sliding_attention in layer_types, but no sliding_window")
    softcap = known.get("final_logit_softcapping")
    count = known.get("num_target_layers")
    return DrafterConfig(
        method=method,
        hidden_size=int(known["hidden_size"]),
        intermediate_size=int(known["intermediate_size"]),
        layers=layers,
        heads=heads,
        kv_heads=int(known["num_key_value_heads"]),
        head_dim=int(known.get("head_dim") or int(known["hidden_size"]) // heads),
        vocab_size=vocab_size,
        draft_vocab_size=int(known.get("draft_vocab_size") or vocab_size),
        norm_eps=float(known["rms_norm_eps"]),
        mask_id=mask_id,
        target_layers=target_layers,
        drafts=_drafts(method, known),
        from_anchor=from_anchor,
        causal=tuple(kind == SLIDING if causal is None else bool(causal) for kind in kinds),
        windows=tuple(window if kind == SLIDING else None for kind in kinds),
        rope=_rope(known),
        target_layer_count=None if count is None else int(count),
        attention_bias=bool(known.get("attention_bias")),
        sinks=bool(known.get("attention_sink_bias")),
        softcap=float(softcap) if softcap else None,
        embedding_scale=float(known.get("input_embedding_scale", 1.0)),
        output_scale=float(known.get("output_multiplier", 1.0)),
        markov_rank=int(known.get("markov_rank", 256)) if method == "dspark" else 0,
        kernel_size=int(known["conv_kernel_size"]) if method == "dflash2" else 0,
        group_size=int(known["conv_group_size"]) if method == "dflash2" else 0,
        selector_rank=int(known["selector_rank"]) if method == "dflash2" else 0,
        selector_top_k=int(known["selector_top_k"]) if method == "dflash2" else 0,
    )


def _drafts(method: Method, known: Mapping[str, Any]) -> int:
    """A block counts the token that it follows, but DSpark's does not unless it says so."""
    size = int(known["block_size"])
    anchored = method != "dspark" or bool(known.get("dspark_bonus_anchor"))
    if size - anchored < 1:
        message = f"block_size {size} leaves no token to draft"
        raise ValueError(message)
    return size - anchored


def _from_anchor(method: Method, known: Mapping[str, Any]) -> bool:
    if method != "dspark":
        return False
    if known.get("logits_start") is not None:
        return int(known["logits_start"]) == 0
    return bool(known.get("sample_from_anchor", True))


def _kinds(known: Mapping[str, Any], layers: int) -> list[str]:
    kinds = list(known.get("layer_types") or [FULL] * layers)
    unknown = [kind for kind in kinds if kind not in {FULL, SLIDING}]
    if unknown or len(kinds) != layers:
        message = f"layer_types must name {layers} layers {FULL!r} or {SLIDING!r}, not {kinds}"
        raise ValueError(message)
    return kinds


def _rope(known: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of mlx-lm's ``initialize_rope``; always over the whole head."""
    scaling = known.get("rope_parameters") or known.get("rope_scaling")
    scaling = dict(scaling) if isinstance(scaling, dict) else None
    base = known.get("rope_theta") or (scaling or {}).get("rope_theta") or 10000.0
    return {
        "base": float(base),
        "traditional": not known.get("rope_is_neox_style", True),
        "scaling_config": scaling,
        "max_position_embeddings": known.get("max_position_embeddings"),
    }
