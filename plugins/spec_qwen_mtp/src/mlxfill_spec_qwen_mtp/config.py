"""``config.json`` of a head, and of the release that it is cut from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attrs import frozen

from mlxfill import BakedHead, DrafterError, folder_format

MODEL_TYPES = ("qwen3_5_mtp", "qwen3_5_moe_mtp", "qwen3_next_mtp")
RELEASES = ("qwen3_5", "qwen3_next")
"""How the ``model_type`` of a target with such a head begins."""
LAYERS = "mtp_num_hidden_layers"
BEYOND_LAYERS = 2
"""A release that does not say its block size is trained for this many tokens more than it has
layers: the one that is pending and the one that a single layer predicts again from itself."""
NEEDED = ("hidden_size", "num_attention_heads", "num_key_value_heads", "rms_norm_eps")


@frozen
class HeadConfig:
    """What a head is built from.

    ``text``: the text model's config, which the head's layer shares.  ``block_size``: tokens of
    a round, the pending one included; drafts are ``block_size - 1``.
    """

    text: Mapping[str, Any]
    block_size: int

    @property
    def hidden_size(self) -> int:
        """Width of the hidden states that the head reads and writes."""
        return int(self.text["hidden_size"])

    @property
    def layers(self) -> int:
        """Decoder layers of the head."""
        return int(self.text.get(LAYERS) or 1)

    @property
    def own_embeddings(self) -> bool:
        """Whether it looks tokens up in an embedding of its own, not in the target's."""
        return bool(self.text.get("mtp_use_dedicated_embeddings"))


def is_release(head: BakedHead) -> bool:
    """Whether a target is of the family whose head this plugin runs."""
    types = (head.config.get("model_type"), head.text_config.get("model_type"))
    return any(str(kind).startswith(RELEASES) for kind in types)


def release_config(head: BakedHead, block_size: int | None = None) -> HeadConfig:
    """The config of a head that still lies in its release.

    :raises DrafterError: the release lacks a value that the head's layer needs.
    """
    text = text_config(head.config, head.folder / "config.json")
    layers = int(text.get(LAYERS) or 1)
    return HeadConfig({**text, LAYERS: layers}, block_size or layers + BEYOND_LAYERS)


def read_config(folder: Path) -> HeadConfig:
    """The config of a split head.

    :raises DrafterError: it is missing, broken, or that of something else.
    """
    file = folder / "config.json"
    config = read_json(file)
    if config.get("model_type") not in MODEL_TYPES:
        raise DrafterError(
            f"{file}: model_type {config.get('model_type')!r} is no head that this plugin knows"
            f" ({', '.join(MODEL_TYPES)}); {folder} is {folder_format(folder).name}"
        )
    text = text_config(config, file)
    block_size = config.get("block_size", int(text.get(LAYERS) or 1) + BEYOND_LAYERS)
    if not isinstance(block_size, int) or block_size <= 1:
        raise DrafterError(f"{file}: block_size must be at least 2, not {block_size!r}")
    return HeadConfig(text, block_size)


def text_config(config: Mapping[str, Any], file: Path) -> dict[str, Any]:
    """The text model's part of a config, with the rope parameters where mlx-lm looks for them.

    :raises DrafterError: a value that the layer needs is missing.
    """
    text = dict(config.get("text_config") or config)
    missing = [name for name in NEEDED if name not in text]
    if missing:
        raise DrafterError(f"{file} lacks {missing[0]!r}, which the head's layer needs")
    if not text.get("rope_parameters"):
        text["rope_parameters"] = {
            "type": "default",
            **{key: text[key] for key in ("rope_theta", "partial_rotary_factor") if key in text},
        }
    return text


def read_json(file: Path) -> dict[str, Any]:
    """A JSON object.  Raises ``DrafterError`` that names the file."""
    try:
        content = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DrafterError(f"{file} cannot be read: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict):
        raise DrafterError(f"{file} holds no JSON object")
    return content
