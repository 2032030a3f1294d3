"""A tiny random model as a folder, as the loaders of mlx-lm and mlxfill want it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mlx.core as mx
from mlx.utils import tree_flatten

from mlxfill.testing.architectures import config_of
from mlxfill.testing.models import shared_model
from mlxfill.testing.tokenizer import EOS, tiny_tokenizer

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


def folder_tokenizer(path: str | os.PathLike[str]) -> Any:  # noqa: ANN401
    """The tokenizer of a model's folder, in mlx-lm's wrapper, as ``mlxfill.load`` hands it out."""
    from mlx_lm.tokenizer_utils import load

    from mlxfill.tool_calls.formats import with_calls

    return with_calls(load(Path(path)))
