"""A tiny random model as a folder, as the loaders of mlx-lm and mlxfill want it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mlx.core as mx
from mlx.utils import tree_flatten

from mlxfill_testing.architectures import config_of
from mlxfill_testing.models import shared_model
from mlxfill_testing.tokenizer import EOS, tiny_tokenizer

if TYPE_CHECKING:
    import os


def tiny_folder(path: str | os.PathLike[str], name: str = "llama", **changes: Any) -> Path:  # noqa: ANN401
    """Write ``shared_model(name, **changes)`` and ``tiny_tokenizer()`` into a new folder.

    :returns: the folder: ``config.json``, ``model.safetensors`` and the tokenizer's files.
    """
    folder = Path(path)
    folder.mkdir(parents=True)
    config = {**config_of(name, **changes), "eos_token_id": EOS}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    weights: Any = tree_flatten(shared_model(name, **changes).parameters())
    mx.save_safetensors(str(folder / "model.safetensors"), dict(weights), {"format": "mlx"})
    tiny_tokenizer().save_pretrained(folder)
    return folder
