"""Reading arrays and parameter trees with types: mlx's own stubs answer unions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import mlx.core as mx
from mlx.utils import tree_flatten

if TYPE_CHECKING:
    from mlx import nn

Stream = mx.Stream | mx.ThreadLocalStream
"""Where mlx computes."""


def row(ids: Sequence[int]) -> mx.array:
    """``[L]`` int32 ids on the device."""
    return mx.array(list(ids), mx.int32)


def ids(array: mx.array) -> list[int]:
    """A 1-D integer array on the host; waits for it."""
    return cast("list[int]", array.tolist())


def one_id(array: mx.array) -> int:
    """The only element of an integer array; waits for it."""
    return cast("int", array.item())


def one_float(array: mx.array) -> float:
    """The only element of a floating array; waits for it."""
    return cast("float", array.item())


def apart(ours: mx.array, theirs: mx.array) -> float:
    """How far ``ours`` is from ``theirs``, relative to its largest number or 1; waits for it.

    What is infinite in both is equal: a model may rule out ids by ``-inf``.
    """
    gap = mx.where(ours == theirs, 0, mx.abs(ours - theirs)).max()
    scale = mx.where(mx.isinf(theirs), 1, mx.abs(theirs)).max()
    return one_float(gap / mx.maximum(scale, 1.0))


def parameters(model: nn.Module) -> list[tuple[str, mx.array]]:
    """Names and arrays of all parameters."""
    return cast("list[tuple[str, mx.array]]", tree_flatten(model.parameters()))


def weight_bytes(model: nn.Module) -> int:
    """Bytes of all parameters."""
    return sum(array.nbytes for _, array in parameters(model))
