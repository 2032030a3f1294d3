"""Cutting the head out of a raw release."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import mlx.core as mx

from mlxfill import DrafterError, baked_head, inferred_quantization
from mlxfill_spec_qwen_mtp.config import HeadConfig, release_config
from mlxfill_spec_qwen_mtp.head import MtpHead, build_head
from mlxfill_spec_qwen_mtp.tensors import Tensors, at_run_time


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
    head = baked_head(release)
    if head is None or not head.tensors:
        promise = f": its config.json promises one ({head.promise})" if head else ""
        raise DrafterError(f"{release} holds no MTP head among its weights{promise}")
    config = release_config(head, block_size)
    tensors = at_run_time(head.read())
    files = sorted(set(head.tensors.values()))
    # Building it proves that the head is whole.
    build_head(config, dict(tensors), mx.float32, files[0] if len(files) == 1 else release)
    quantization, tied = _quantization(config, tensors), "tie_word_embeddings"
    written = {
        "architectures": ["Qwen3_5MTPDraftModel"],
        "model_type": "qwen3_5_mtp",
        "block_size": config.block_size,
        tied: bool(head.config.get(tied, config.text.get(tied, False))),
        "text_config": config.text,
        **({"quantization": quantization} if quantization else {}),
    }
    _write(out, written, tensors)
    return len(tensors)


def _quantization(config: HeadConfig, tensors: Tensors) -> dict[str, Any] | None:
    """What mlx-lm writes of quantized weights; None if they are dense.

    What most of the parts have stands for all, others have entries of their own.
    """
    found = inferred_quantization(MtpHead(config), tensors)
    if not found:
        return None
    most = max(found.values(), key=list(found.values()).count)
    return {**most, **{path: own for path, own in found.items() if own != most}}


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
