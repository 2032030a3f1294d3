"""A hash of a model's weights."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

import mlx.core as mx

from mlxfill.model.reading import ids, parameters

if TYPE_CHECKING:
    from mlx import nn

_UNSIGNED = {1: mx.uint8, 2: mx.uint16, 4: mx.uint32, 8: mx.uint64}


def fingerprint(model: nn.Module) -> str:
    """A hash of names, shapes, dtypes and the bits of all weights, adapters included.

    The bits of an array are added up as whole numbers: one pass over the weights on the device,
    the same on every machine.
    """
    named = parameters(model)
    sums = ids(mx.stack([_sum(array) for _, array in named])) if named else []
    facts = [
        (name, list(array.shape), str(array.dtype), total)
        for (name, array), total in zip(named, sums, strict=True)
    ]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def _sum(array: mx.array) -> mx.array:
    """The bits of an array as unsigned numbers, added up modulo 2**32."""
    flat = array.flatten()
    bits = mx.view(flat, _UNSIGNED[array.dtype.size]) if array.dtype != mx.bool_ else flat
    return bits.astype(mx.uint32).sum()
