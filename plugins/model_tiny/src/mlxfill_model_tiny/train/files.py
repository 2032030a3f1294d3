"""Model folders in mlx-lm's layout."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import mlx.core as mx
from mlx.utils import tree_flatten
from tokenizers import Tokenizer

from mlxfill import ModelNotFoundError
from mlxfill_model_tiny.train.block_network import BlockDrafter
from mlxfill_model_tiny.train.networks import MTPHead

if TYPE_CHECKING:
    from pathlib import Path

    import mlx.nn as nn

    from mlxfill_model_tiny.train.settings import Settings

WEIGHTS, CONFIG = "model.safetensors", "config.json"


def save_model(
    folder: Path, model: nn.Module, config: dict[str, Any], tokenizer: Path | None = None
) -> None:
    """Write weights and config, and copy the files of a tokenizer folder beside them."""
    folder.mkdir(parents=True, exist_ok=True)
    save_arrays(folder, dict(tree_flatten(model.parameters())), config)
    for file in tokenizer.iterdir() if tokenizer else ():
        shutil.copy(file, folder / file.name)


def save_arrays(folder: Path, arrays: dict[str, mx.array], config: dict[str, Any]) -> None:
    """Write float32 or bfloat16 ``arrays`` and a config that names their dtype."""
    mx.save_safetensors(str(folder / WEIGHTS), arrays, metadata={"format": "mlx"})
    is_half = any(array.dtype == mx.bfloat16 for array in arrays.values())
    described = {**config, "dtype": "bfloat16" if is_half else "float32"}
    (folder / CONFIG).write_text(json.dumps(described, indent=1) + "\n", encoding="utf-8")


def load_config(folder: Path) -> dict[str, Any]:
    """Read ``config.json``."""
    config: dict[str, Any] = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    return config


def load_tokenizer(settings: Settings) -> Tokenizer:
    """Load what the part ``tokenizer`` wrote.

    :raises mlxfill.ModelNotFoundError: it has not run yet.
    """
    file = settings.tokenizer / "tokenizer.json"
    if not file.exists():
        raise _not_yet(file, "tokenizer")
    return Tokenizer.from_file(str(file))


def load_target(settings: Settings) -> tuple[Any, dict[str, Any]]:
    """Load the trained target and its ``text_config``.

    :raises mlxfill.ModelNotFoundError: the part ``target`` has not run yet.
    """
    from mlx_lm import load

    if not (settings.target / WEIGHTS).exists():
        raise _not_yet(settings.target / WEIGHTS, "target")
    model = load(str(settings.target))[0]
    return model, load_config(settings.target)["text_config"]


def load_head(folder: Path) -> MTPHead:
    """Load a trained MTP head."""
    head = MTPHead(load_config(folder)["text_config"])
    head.load_weights(str(folder / WEIGHTS))
    return head


def load_block_drafter(folder: Path) -> BlockDrafter:
    """Load a trained block drafter."""
    drafter = BlockDrafter(load_config(folder))
    drafter.load_weights(str(folder / WEIGHTS))
    return drafter


def _not_yet(file: Path, part: str) -> ModelNotFoundError:
    return ModelNotFoundError(f"{file} is missing: train the part `{part}` first")
