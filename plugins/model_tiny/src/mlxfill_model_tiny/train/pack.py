"""Collect the trained models as they are shipped, and hold them to the size rule."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Literal, cast

import mlx.core as mx

from mlxfill import InputError, ModelNotFoundError
from mlxfill_model_tiny.train.files import WEIGHTS, load_config, save_arrays

if TYPE_CHECKING:
    from pathlib import Path

Precision = Literal["float32", "bfloat16"]

PARTS = ("target", "draft", "mtp", "dflash")
LARGEST_FILE, LARGEST_WHOLE = 5_000_000, 16_000_000
"""Bytes."""

_ALWAYS_FLOAT32 = "A_log"
"""mlx-lm keeps the decay of a recurrent layer in float32 whatever the model's dtype."""


def pack(out: Path, precision: Precision) -> dict[str, int]:
    """Copy each of ``PARTS`` to ``out/models``, with weights of ``precision``.

    :returns: bytes of each file, by path below ``out/models``.
    :raises mlxfill.ModelNotFoundError: a part is not trained yet.
    :raises mlxfill.InputError: a file, or all together, would be too large to ship.
    """
    for part in PARTS:
        if not (out / part / WEIGHTS).exists():
            raise ModelNotFoundError(f"{out / part} has no weights: train the part `{part}` first")
    for part in PARTS:
        _pack_part(out / part, out / "models" / part, precision)
    return _checked_sizes(out / "models")


def _pack_part(source: Path, destination: Path, precision: Precision) -> None:
    shutil.copytree(source, destination, dirs_exist_ok=True)
    dtype = mx.float32 if precision == "float32" else mx.bfloat16
    arrays = cast("dict[str, mx.array]", mx.load(str(source / WEIGHTS)))
    cast_arrays = {
        name: array.astype(mx.float32 if name.endswith(_ALWAYS_FLOAT32) else dtype)
        for name, array in arrays.items()
    }
    save_arrays(destination, cast_arrays, load_config(source))


def _checked_sizes(models: Path) -> dict[str, int]:
    sizes = {
        str(file.relative_to(models)): file.stat().st_size
        for file in sorted(models.rglob("*"))
        if file.is_file()
    }
    if max(sizes.values()) > LARGEST_FILE or sum(sizes.values()) > LARGEST_WHOLE:
        raise InputError(
            f"{models} holds {sum(sizes.values())} bytes, the largest file {max(sizes.values())}: "
            f"the limits are {LARGEST_WHOLE} and {LARGEST_FILE}, try --precision bfloat16"
        )
    return sizes
