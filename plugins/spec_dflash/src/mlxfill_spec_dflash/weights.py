"""Tensors of a drafter: read, checked, and put into its module."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten

from mlxfill import DrafterError
from mlxfill_spec_dflash.module import BlockModule

if TYPE_CHECKING:
    from mlxfill_spec_dflash.config import DrafterConfig

Tensors = dict[str, mx.array]

PREFIX = "model."
CODEBOOKS = ("predecessor_codebook", "successor_codebook")
UNUSED = ("confidence_head.", "rotary_emb.", "t2d")
"""DSpark's estimate of its own drafts would have to be read from the device before a round: how
often drafts are right is learnt from the rounds instead."""
SAMPLED_BYTES = 1 << 16
"""How much of each end of a weights file goes into its fingerprint."""


def read_tensors(files: Sequence[Path]) -> Tensors:
    """All tensors of some safetensors files under the module's names, lazily.

    :raises DrafterError: a file is broken; names it.
    """
    tensors: Tensors = {}
    for file in files:
        try:
            loaded = mx.load(str(file))
        except (RuntimeError, ValueError, OSError) as error:
            reason = " ".join(str(error).split())[:300]
            raise DrafterError(f"{file} is no whole safetensors file: {reason}") from error
        assert isinstance(loaded, dict)  # noqa: S101 - safetensors hold named tensors
        tensors |= loaded
    return {
        _name(name): tensor
        for name, tensor in tensors.items()
        if not name.removeprefix(PREFIX).startswith(UNUSED)
    }


def _name(published: str) -> str:
    name = published.removeprefix(PREFIX)
    return f"{name}.weight" if name.endswith(CODEBOOKS) else name


def build_module(
    config: DrafterConfig, tensors: Tensors, dtype: mx.Dtype, where: Path
) -> BlockModule:
    """A drafter with these weights, dense ones in ``dtype``; quantized ones stay as they are.

    :param where: file or folder of the weights, for errors.
    :raises DrafterError: a tensor is missing, left over or of another shape; names it.
    """
    module = BlockModule(
        config,
        own_embedding="embed_tokens.weight" in tensors,
        own_head="lm_head.weight" in tensors or config.draft_vocab_size != config.vocab_size,
    )
    if config.quantization:
        _quantize(module, config.quantization, tensors)
    expected = parameters(module)
    for name, parameter in expected.items():
        if name not in tensors:
            raise DrafterError(f"{where} lacks the tensor {name!r} that its config.json promises")
        if tensors[name].shape != parameter.shape:
            raise DrafterError(
                f"{where}: tensor {name!r} has the shape {list(tensors[name].shape)}, its"
                f" config.json says {list(parameter.shape)}"
            )
    left_over = sorted(tensors.keys() - expected.keys())
    if left_over:
        raise DrafterError(
            f"{where} holds the tensor {left_over[0]!r}, for which a {config.method} drafter has"
            " no use"
        )
    module.load_weights([(name, _cast(tensors[name], dtype)) for name in expected])
    module.eval()
    mx.eval(parameters(module))
    return module


def parameters(module: nn.Module) -> Tensors:
    """Arrays of a module by name."""
    return dict(cast("list[tuple[str, mx.array]]", tree_flatten(module.parameters())))


def fingerprint(files: Sequence[Path]) -> str:
    """16 hex digits that tell weights apart: names, sizes, headers and ends of the files."""
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{file.name}:{file.stat().st_size}".encode())
        with file.open("rb") as stream:
            digest.update(stream.read(SAMPLED_BYTES))
            stream.seek(max(file.stat().st_size - SAMPLED_BYTES, 0))
            digest.update(stream.read())
    return digest.hexdigest()[:16]


def _quantize(module: nn.Module, quantization: Any, tensors: Tensors) -> None:  # noqa: ANN401
    """Make room for quantized weights where there are any, as mlx-lm's loader does."""

    def wanted(path: str, part: nn.Module) -> bool | dict[str, Any]:
        if not hasattr(part, "to_quantized") or f"{path}.scales" not in tensors:
            return False
        own: bool | dict[str, Any] = quantization.get(path, True)
        return own

    nn.quantize(
        module,
        group_size=quantization["group_size"],
        bits=quantization["bits"],
        mode=quantization.get("mode", "affine"),
        class_predicate=wanted,
    )


def _cast(tensor: mx.array, dtype: mx.Dtype) -> mx.array:
    return tensor.astype(dtype) if mx.issubdtype(tensor.dtype, mx.floating) else tensor
