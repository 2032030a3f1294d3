"""Weights of heads and drafters, put into modules and told apart."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import mlx.core as mx
import mlx.nn as nn
import pytest
from mlx.utils import tree_flatten

import mlxfill

if TYPE_CHECKING:
    from pathlib import Path

USER = "a head of one layer"


def weights_of(module: nn.Module) -> dict[str, mx.array]:
    return dict(tree_flatten(module.parameters()))


def test_dense_weights_take_the_dtype(tmp_path: Path) -> None:
    tensors = weights_of(nn.Linear(64, 32))
    module = nn.Linear(64, 32)
    mlxfill.load_weights(module, tensors, mx.bfloat16, tmp_path, USER)
    assert module.weight.dtype == mx.bfloat16
    assert mx.array_equal(module.weight, tensors["weight"].astype(mx.bfloat16))


def test_quantized_weights_stay_so_without_a_config(tmp_path: Path) -> None:
    dense = nn.Sequential(nn.Linear(64, 32), nn.Linear(32, 64))
    quantized = nn.Sequential(dense.layers[0].to_quantized(32, 4), dense.layers[1])
    module = nn.Sequential(nn.Linear(64, 32), nn.Linear(32, 64))
    mlxfill.load_weights(module, weights_of(quantized), mx.float32, tmp_path, USER)
    assert isinstance(module.layers[0], nn.QuantizedLinear)
    assert isinstance(module.layers[1], nn.Linear)
    given = mx.random.normal((3, 64))
    assert mx.array_equal(module(given), quantized(given))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bias": None}, "lacks the tensor 'bias' that its config.json promises"),
        ({"bias": mx.zeros(7)}, r"tensor 'bias' has the shape \[7\], its config.json says \[32\]"),
        ({"other": mx.zeros(7)}, "holds the tensor 'other', for which a head of one layer has no"),
    ],
)
def test_what_does_not_fit_is_named(
    tmp_path: Path, change: dict[str, mx.array | None], message: str
) -> None:
    changed = {**weights_of(nn.Linear(64, 32)), **change}
    tensors = {name: tensor for name, tensor in changed.items() if tensor is not None}
    with pytest.raises(mlxfill.DrafterError, match=message):
        mlxfill.load_weights(nn.Linear(64, 32), tensors, mx.float32, tmp_path, USER)


def test_other_weights_have_another_fingerprint(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    mx.save_safetensors(str(file), {"weight": mx.arange(1000)})
    copy = tmp_path / "copies" / file.name
    copy.parent.mkdir()
    shutil.copy(file, copy)
    assert mlxfill.files_fingerprint([copy]) == mlxfill.files_fingerprint([file])
    changed = mx.arange(1000)
    changed[500] = 7
    mx.save_safetensors(str(copy), {"weight": changed})
    assert mlxfill.files_fingerprint([copy]) != mlxfill.files_fingerprint([file])
