from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import entry_points
from importlib.resources import files
from pathlib import Path

import pytest

import mlxfill
from mlxfill_model_tiny import plugin

MODEL_TYPES = {
    "tiny": "qwen3_5",
    "tiny-draft": "qwen3",
    "tiny-mtp": "qwen3_5_mtp",
    "tiny-dflash": "qwen3",
}


@pytest.mark.parametrize(("name", "model_type"), MODEL_TYPES.items())
def test_a_name_resolves_to_a_model_folder(name: str, model_type: str) -> None:
    folder = plugin.mlxfill_resolve_model(name)
    assert folder is not None
    assert json.loads((folder / "config.json").read_text())["model_type"] == model_type
    assert (folder / "model.safetensors").is_file()


@pytest.mark.parametrize("name", ["", "Tiny", "tiny-", "tiny-target", "models/target", "../tiny"])
def test_any_other_name_is_left_to_other_plugins(name: str) -> None:
    assert plugin.mlxfill_resolve_model(name) is None


def test_the_entry_point_is_this_plugin_for_this_api() -> None:
    (entry,) = entry_points(group="mlxfill", name="model-tiny")
    assert entry.load() is plugin
    assert plugin.MLXFILL_API == mlxfill.MLXFILL_API


def test_the_package_stays_below_its_size_limits() -> None:
    package = Path(str(files("mlxfill_model_tiny")))
    sizes = [
        file.stat().st_size
        for file in package.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    ]
    assert sum(sizes) < 16_000_000
    assert max(sizes) < 5_000_000


def test_importing_the_package_and_its_plugin_loads_no_mlx() -> None:
    program = (
        "import sys, mlxfill_model_tiny, mlxfill_model_tiny.plugin\n"
        "mlxfill_model_tiny.held_out_asks(1)\n"
        "print(sorted({'mlx', 'mlx_lm', 'transformers', 'tokenizers', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
