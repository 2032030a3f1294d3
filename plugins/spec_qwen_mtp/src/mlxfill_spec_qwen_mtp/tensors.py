"""Weights of a head, brought to the names and the scale that it runs with.

A raw release calls them ``mtp.NAME`` or ``language_model.mtp.NAME``, keeps the scale of every norm
minus 1 and may keep experts one by one or gate and up projection in one; a split head is published
as it runs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import mlx.core as mx

from mlxfill import DrafterError

PREFIX = re.compile(r"(?:(?:model\.|language_model\.)*mtp\.)?")
_EXPERT = re.compile(r"(.*)\.experts\.(\d+)\.(gate_proj|up_proj|down_proj)\.(weight|scales|biases)")
_FUSED = ".experts.gate_up_proj"

Tensors = dict[str, mx.array]


def at_run_time(tensors: Mapping[str, mx.array]) -> Tensors:
    """The same weights as the head's modules name and use them."""
    plain = {PREFIX.sub("", name, count=1): tensor for name, tensor in tensors.items()}
    return {name: _scaled(name, tensor) for name, tensor in _stacked(_parted(plain)).items()}


def _scaled(name: str, tensor: mx.array) -> mx.array:
    """Norm scales, decided one by one: published near 1, or near 0 as a release stores them."""
    is_norm = tensor.ndim == 1 and "norm" in name
    if is_norm and float(mx.mean(tensor.astype(mx.float32))) < 0.5:  # noqa: PLR2004 - the middle
        return tensor + 1.0
    return tensor


def _parted(tensors: Tensors) -> Tensors:
    """Experts whose gate and up projection are one tensor ``[E, 2 * I, H]``."""
    parted: Tensors = {}
    for name, tensor in tensors.items():
        if name.endswith(_FUSED):
            base = name.removesuffix(_FUSED) + ".switch_mlp"
            gate, up = mx.split(tensor, 2, axis=-2)
            parted |= {f"{base}.gate_proj.weight": gate, f"{base}.up_proj.weight": up}
        elif name.endswith(".experts.down_proj"):
            base = name.removesuffix(".experts.down_proj") + ".switch_mlp"
            parted[f"{base}.down_proj.weight"] = tensor
        else:
            parted[name] = tensor
    return parted


def _stacked(tensors: Tensors) -> Tensors:
    """Experts stored one by one, as one tensor ``[E, ...]``."""
    stacked: Tensors = {}
    experts: dict[str, dict[int, mx.array]] = {}
    for name, tensor in tensors.items():
        match = _EXPERT.fullmatch(name)
        if match is None:
            stacked[name] = tensor
            continue
        base, number, projection, kind = match.groups()
        experts.setdefault(f"{base}.switch_mlp.{projection}.{kind}", {})[int(number)] = tensor
    for name, parts in experts.items():
        gap = next((i for i in range(len(parts)) if i not in parts), None)
        if gap is not None:
            raise DrafterError(f"expert {gap} of {name} is missing")
        stacked[name] = mx.stack([parts[i] for i in range(len(parts))])
    return stacked
