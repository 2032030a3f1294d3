"""Tensors of a drafter: read, checked, and put into its module."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten

from mlxfill import load_weights, read_tensors
from mlxfill_spec_dflash.module import BlockModule

if TYPE_CHECKING:
    from mlxfill_spec_dflash.config import DrafterConfig

Tensors = dict[str, mx.array]

PREFIX = "model."
CODEBOOKS = ("predecessor_codebook", "successor_codebook")
UNUSED = ("confidence_head.", "rotary_emb.", "t2d")
"""DSpark's estimate of its own drafts would have to be read from the device before a round: how
often drafts are right is learnt from the rounds instead."""


def read_module_tensors(files: Sequence[Path]) -> Tensors:
    """All tensors of some safetensors files under the module's names, lazily.

    :raises DrafterError: a file is broken; names it.
    """
    return {
        _name(name): tensor
        for name, tensor in read_tensors(files).items()
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
    load_weights(module, tensors, dtype, where, f"a {config.method} drafter")
    return module


def parameters(module: nn.Module) -> Tensors:
    """Arrays of a module by name."""
    return dict(cast("list[tuple[str, mx.array]]", tree_flatten(module.parameters())))
