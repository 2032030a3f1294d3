"""Weights of heads and drafters: read, fp8 decoded, quantization told by shapes."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, cast

import mlx.core as mx

from mlxfill.errors import DrafterError, reason

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from pathlib import Path

    from mlx import nn

BLOCK = 128
"""Rows and columns that share a scale, where fp8 weights have one a block (DeepSeek-V3, 2024)."""
SCALES = ("_scale_inv", "_scale")
"""What is appended to the name of a weight for that of its scales."""
ACTIVATION_SCALES = ("input_scale", "activation_scale")
"""For kernels that compute in fp8; decoded weights need none."""
WORD = 32
"""Bits of an element of a quantized weight."""
SAMPLED_BYTES = 1 << 16
"""How much of each end of a weights file goes into its fingerprint."""


def read_tensors(
    files: Iterable[Path], names: Collection[str] | None = None
) -> dict[str, mx.array]:
    """Tensors of some safetensors files, lazily; fp8 weights in bfloat16, with their scales.

    :param names: those that are wanted; None for all.
    :raises DrafterError: a file is broken, or a scale does not fit its weight; names it.
    """
    tensors: dict[str, mx.array] = {}
    for file in files:
        try:
            loaded: Any = mx.load(str(file))
        except (RuntimeError, ValueError, OSError) as error:
            message = f"{file} is no whole safetensors file: {reason(error)}"
            raise DrafterError(message) from error
        wanted = {k: v for k, v in loaded.items() if names is None or k in names}
        tensors |= wanted
    return _decoded(tensors)


def _decoded(tensors: Mapping[str, mx.array]) -> dict[str, mx.array]:
    """The same weights without fp8."""
    scales = {
        name: f"{name}{suffix}"
        for suffix in reversed(SCALES)
        for name, tensor in tensors.items()
        if f"{name}{suffix}" in tensors and (tensor.dtype == mx.uint8 or name.endswith("weight"))
    }
    stems = {name.rpartition(".")[0] for name in scales}
    needless = {f"{stem}.{name}" for stem in stems for name in ACTIVATION_SCALES}
    return {
        name: _from_fp8(name, tensor, tensors[scales[name]]) if name in scales else tensor
        for name, tensor in tensors.items()
        if name not in needless and name not in scales.values()
    }


def _from_fp8(name: str, weight: mx.array, scale: mx.array) -> mx.array:
    """``[..., N, M]`` of e4m3; one scale for all, for each row, or for each block."""
    if weight.dtype != mx.uint8 or weight.ndim < 2:  # noqa: PLR2004 - rows and columns
        raise DrafterError(f"tensor {name!r} has scales beside it, but is not of fp8 (e4m3)")
    *more, rows, columns = weight.shape
    blocks = [*more, -(-rows // BLOCK), -(-columns // BLOCK)]
    if list(scale.shape) == blocks:
        scale = mx.repeat(mx.repeat(scale, BLOCK, -2), BLOCK, -1)[..., :rows, :columns]
    elif scale.size != 1 and scale.shape != (*more, rows, 1):
        raise DrafterError(
            f"tensor {name!r} of the shape {list(weight.shape)} has scales of the shape"
            f" {list(scale.shape)}, not {blocks}: one for {BLOCK}x{BLOCK} weights"
        )
    decoded = mx.from_fp8(weight, dtype=mx.float32)
    return (decoded * scale.astype(mx.float32)).astype(mx.bfloat16)


def inferred_quantization(
    module: nn.Module, tensors: Mapping[str, mx.array]
) -> dict[str, dict[str, Any]]:
    """How each part of ``module`` is quantized whose scales are among ``tensors``.

    The width of the part, which is not quantized yet, and the shapes tell it: ``group_size``,
    ``bits`` and ``mode`` as ``mlx.nn.quantize`` takes them.

    :raises DrafterError: nothing that mlx has comes of them; names the tensor.
    """
    found: dict[str, dict[str, Any]] = {}
    for path, part in module.named_modules():
        if f"{path}.scales" in tensors and hasattr(part, "to_quantized"):
            found[path] = _told_by_shapes(path, part.weight.shape[-1], tensors)
    return found


def _told_by_shapes(path: str, width: int, tensors: Mapping[str, mx.array]) -> dict[str, Any]:
    weight, scales = tensors.get(f"{path}.weight"), tensors[f"{path}.scales"]
    words, groups = 0 if weight is None else weight.shape[-1], scales.shape[-1]
    bits, rest = divmod(words * WORD, width)
    group_size, more = divmod(width, max(groups, 1))
    affine = f"{path}.biases" in tensors
    mode = "affine" if affine else _MODES.get((bits, group_size), "")
    if rest or more or not mode or not bits:
        raise DrafterError(
            f"{path}.weight and {path}.scales, {words} and {groups} elements a row for {width}"
            " weights, are no quantization that mlx has"
        )
    return {"group_size": group_size, "bits": bits, "mode": mode}


_MODES = {(4, 32): "mxfp4", (8, 32): "mxfp8", (4, 16): "nvfp4"}
"""Of weights without biases, by bits and group size."""


def quantize_by_shapes(module: nn.Module, tensors: Mapping[str, mx.array]) -> None:
    """Make room in ``module`` for those of ``tensors`` that are quantized.

    :raises DrafterError: nothing that mlx has comes of their shapes; names the tensor.
    """
    from mlx import nn

    found = inferred_quantization(module, tensors)
    if found:
        nn.quantize(module, class_predicate=lambda path, _: found.get(path, False))


def load_weights(
    module: nn.Module, tensors: Mapping[str, mx.array], dtype: mx.Dtype, where: Path, user: str
) -> None:
    """Put all ``tensors`` into ``module``: dense ones in ``dtype``, quantized ones as they are.

    :param where: file or folder of the weights, and ``user``: what the module is, for errors.
    :raises DrafterError: a tensor is missing, left over or of another shape; names it.
    """
    from mlx.utils import tree_flatten

    try:
        quantize_by_shapes(module, tensors)
    except DrafterError as error:
        raise DrafterError(f"{where}: {error}") from error
    expected = dict(cast("list[tuple[str, mx.array]]", tree_flatten(module.parameters())))
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
            f"{where} holds the tensor {left_over[0]!r}, for which {user} has no use"
        )
    module.load_weights([(name, _cast(tensors[name], dtype)) for name in expected])
    module.eval()
    mx.eval(module.parameters())


def _cast(tensor: mx.array, dtype: mx.Dtype) -> mx.array:
    return tensor.astype(dtype) if mx.issubdtype(tensor.dtype, mx.floating) else tensor


def files_fingerprint(files: Iterable[Path]) -> str:
    """16 hex digits that tell weights apart: names, sizes, headers and ends of the files."""
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{file.name}:{file.stat().st_size}".encode())
        with file.open("rb") as stream:
            digest.update(stream.read(SAMPLED_BYTES))
            stream.seek(max(file.stat().st_size - SAMPLED_BYTES, 0))
            digest.update(stream.read())
    return digest.hexdigest()[:16]
