"""Cutting the head out of a raw release."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import mlx.core as mx

from mlxfill import DrafterError
from mlxfill_spec_qwen_mtp.config import BEYOND_LAYERS, HeadConfig, read_json, text_config
from mlxfill_spec_qwen_mtp.head import build_head
from mlxfill_spec_qwen_mtp.tensors import PREFIX, Tensors, at_run_time, read_tensors

INDEX = "model.safetensors.index.json"
LAYERS = "mtp_num_hidden_layers"


def split(release: Path, out: Path, block_size: int | None = None) -> int:
    """Write the head of the release in ``release`` to the new folder ``out``; returns its tensors.

    Norms are written at run-time scale and experts stacked, so that ``out`` is in the published
    format.

    :param block_size: tokens of a round, the pending one included; None: what the release says.
    :raises DrafterError: the release has no head, or not the whole of it; names file and tensor;
        or ``out`` cannot be written.
    """
    if out.is_dir() and any(out.iterdir()):
        raise DrafterError(f"{out} is not empty: name a new folder")
    config = read_json(release / "config.json")
    text = text_config(config, release / "config.json")
    tensors, where = _head_tensors(release, text)
    quantization = _quantization(config, tensors, where)
    layers = int(text.get(LAYERS) or 1)
    size = block_size or layers + BEYOND_LAYERS
    # Building it proves that the head is whole.
    build_head(HeadConfig(text, size, quantization), dict(tensors), mx.float32, where)
    written = {
        "architectures": ["Qwen3_5MTPDraftModel"],
        "model_type": "qwen3_5_mtp",
        "block_size": size,
        "tie_word_embeddings": bool(
            config.get("tie_word_embeddings", text.get("tie_word_embeddings", False))
        ),
        "text_config": {**text, LAYERS: layers},
        **({"quantization": quantization} if quantization else {}),
    }
    _write(out, written, tensors)
    return len(tensors)


def _head_tensors(release: Path, text: Mapping[str, Any]) -> tuple[Tensors, Path]:
    """The head's tensors at run-time scale, and the file (or folder) that holds them."""
    files = _files(release)
    found = {
        name: tensor for name, tensor in read_tensors(files).items() if name.startswith(PREFIX)
    }
    where = files[0] if len(files) == 1 else release
    if not found:
        promise = (
            f" although config.json promises {text[LAYERS]} MTP layer" if text.get(LAYERS) else ""
        )
        raise DrafterError(f"{where} has no tensor {PREFIX}fc.weight{promise}: nothing to split")
    scale = next((name for name in found if name.endswith("weight_scale_inv")), None)
    if scale is not None:
        raise DrafterError(f"{where}: {scale} belongs to fp8 weights; split the bf16 release")
    return at_run_time(found), where


def _files(release: Path) -> list[Path]:
    """The shards that hold the head, all of them where no index says which."""
    index = release / INDEX
    if index.is_file():
        weights = read_json(index).get("weight_map", {})
        names = sorted({file for name, file in weights.items() if name.startswith(PREFIX)})
        missing = [name for name in names if not (release / name).is_file()]
        if missing:
            raise DrafterError(f"{release} lacks the shard {missing[0]} that {INDEX} lists")
        if names:
            return [release / name for name in names]
    files = sorted(release.glob("*.safetensors"))
    if not files:
        raise DrafterError(f"{release} has no *.safetensors")
    return files


def _quantization(
    config: Mapping[str, Any], tensors: Tensors, where: Path
) -> dict[str, Any] | None:
    """The release's quantization with the head's own entries under its names; None if dense."""
    if not any(name.endswith(".scales") for name in tensors):
        return None
    found = config.get("quantization")
    if not isinstance(found, dict):
        raise DrafterError(f"{where} holds quantized tensors, its config.json no quantization")
    own = {name.removeprefix(PREFIX): value for name, value in found.items()}
    return {
        name: value
        for name, value in own.items()
        if not isinstance(value, dict) or f"{name}.weight" in tensors
    }


def _write(out: Path, config: Mapping[str, Any], tensors: Tensors) -> None:
    """Weights first, each file under its name only when it is whole."""
    part = out / "part.safetensors"
    try:
        out.mkdir(parents=True, exist_ok=True)
        with part.open("wb") as file:  # given a name, mlx would not say why it cannot write
            mx.save_safetensors(file, dict(tensors), metadata={"format": "mlx"})
        part.replace(out / "model.safetensors")
        (out / "config.json").write_text(json.dumps(config, indent=1) + "\n", "utf-8")
    except OSError as error:
        with suppress(OSError):
            part.unlink()
        raise DrafterError(f"{out} cannot be written: {error.strerror or error}") from error
