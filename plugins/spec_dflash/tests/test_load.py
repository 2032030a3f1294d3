"""A drafter from its published folder, and what is refused in one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import pytest

import mlxfill
from mlxfill import DrafterError, Sampling
from mlxfill.sampling import Chooser
from mlxfill_spec_dflash import plugin
from mlxfill_spec_dflash.config import read_config
from mlxfill_spec_dflash.module import BlockModule
from mlxfill_spec_dflash.provider import load_provider
from mlxfill_spec_dflash.weights import parameters
from mlxfill_testing import tiny_folder

Release = Callable[..., Path]


def drafts(folder: Path, target: Any, depth: int = 4) -> list[int]:
    """What the drafter in a folder guesses after a fixed story."""
    rows = load_provider(folder, target).open(target, [Chooser(Sampling(seed=1))], [None])
    states = mx.random.normal((1, 7, 128), key=mx.random.key(2))
    rows.prefill(mx.zeros((1, 7), mx.int32), states)
    guessed: Any = rows.draft([33], depth, [8]).tolist()
    return list(guessed[0])


def tensors_of(folder: Path) -> dict[str, mx.array]:
    tensors = mx.load(str(folder / "model.safetensors"))
    assert isinstance(tensors, dict)
    return tensors


# --- forms of a folder -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind", ["dflash", "dflash2", "dspark", "dspark after the anchor", "dspark of speculators"]
)
def test_the_block_size_bounds_the_drafts(folders: dict[str, Path], target: Any, kind: str) -> None:
    assert load_provider(folders[kind], target).default_depth == 5
    assert len(drafts(folders[kind], target, 99)) == 5


def test_a_draft_vocabulary_bounds_what_is_drafted(folders: dict[str, Path], target: Any) -> None:
    assert all(token % 2 == 0 for token in drafts(folders["dspark of speculators"], target))


def test_a_draft_vocabulary_without_its_ids_is_refused(
    release: Release, tmp_path: Path, target: Any
) -> None:
    folder = release(tmp_path / "drafter", "dspark of speculators")
    tensors = {name: tensor for name, tensor in tensors_of(folder).items() if name != "d2t"}
    mx.save_safetensors(str(folder / "model.safetensors"), tensors)
    with pytest.raises(DrafterError, match="lacks the tensor 'd2t'"):
        load_provider(folder, target)


def test_a_prefix_of_the_names_makes_no_difference(
    release: Release, tmp_path: Path, target: Any
) -> None:
    plain = release(tmp_path / "plain", "dflash")
    other = release(tmp_path / "other", "dflash")
    named = {f"model.{k}": v for k, v in tensors_of(plain).items()}
    mx.save_safetensors(str(other / "model.safetensors"), named)
    assert drafts(other, target) == drafts(plain, target)


def test_weights_in_several_files(release: Release, tmp_path: Path, target: Any) -> None:
    plain, parted = release(tmp_path / "plain", "dflash2"), release(tmp_path / "parts", "dflash2")
    tensors = tensors_of(plain)
    (parted / "model.safetensors").unlink()
    for number, names in enumerate((sorted(tensors)[::2], sorted(tensors)[1::2]), 1):
        file = parted / f"model-0000{number}-of-00002.safetensors"
        mx.save_safetensors(str(file), {name: tensors[name] for name in names})
    assert drafts(parted, target) == drafts(plain, target)


@pytest.mark.parametrize("kind", ["dflash", "dspark after the anchor"])
def test_quantized_weights(release: Release, tmp_path: Path, target: Any, kind: str) -> None:
    dense = release(tmp_path / "dense", kind)
    small = release(tmp_path / "small", kind, quantization={"group_size": 32, "bits": 8})
    module = BlockModule(read_config(dense), own_embedding=False, own_head=False)
    module.load_weights(str(dense / "model.safetensors"))
    nn.quantize(
        module,
        group_size=32,
        bits=8,
        class_predicate=lambda path, part: (
            hasattr(part, "to_quantized") and part.weight.shape[-1] % 32 == 0 and path != "fc"
        ),
    )
    mx.save_safetensors(str(small / "model.safetensors"), parameters(module))
    assert load_provider(small, target).weights_bytes < load_provider(dense, target).weights_bytes
    assert drafts(small, target) == drafts(dense, target)


def test_a_dense_drafter_computes_in_the_targets_precision(
    release: Release, tmp_path: Path, target: Any
) -> None:
    folder = release(tmp_path / "half", "dflash")
    bytes_of = load_provider(folder, target).weights_bytes
    half = {k: v.astype(mx.bfloat16) for k, v in tensors_of(folder).items()}
    mx.save_safetensors(str(folder / "model.safetensors"), half)
    assert load_provider(folder, target).weights_bytes == bytes_of


# --- what a folder is ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind",
    [
        *("dflash", "dflash sliding", "dflash2"),
        *("dspark", "dspark after the anchor", "dspark of speculators"),
    ],
)
def test_its_folders_are_claimed(folders: dict[str, Path], kind: str) -> None:
    (drafter,) = plugin.mlxfill_draft_kinds()
    assert drafter.detect(folders[kind])


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"]},
        {"model_type": "qwen3"},
        {"model_type": "gemma4_text", "architectures": ["Gemma4DSparkModel"]},
        {"model_type": "laguna", "dflash_config": {}, "architectures": ["DFlashDraftModel"]},
        {"model_type": "qwen3", "architectures": ["LlamaForCausalLMEagle3"]},
        {"model_type": "qwen3_5_mtp"},
        {"speculators_model_type": "eagle3", "transformer_layer_config": {}},
        {"speculators_model_type": "dflash", "transformer_layer_config": {"model_type": "llama"}},
        {"speculators_model_type": "dflash", "transformer_layer_config": None},
        {"model_type": "deepseek_v4", "architectures": ["DeepseekV4DSparkModel"]},
        {"model_type": ["qwen3"], "architectures": "DFlashDraftModel"},
        {"model_type": "qwen3", "architectures": [1, None], "dflash_config": []},
        [],
        None,
    ],
)
def test_other_folders_are_not_claimed(tmp_path: Path, config: Any) -> None:
    if config is not None:
        (tmp_path / "config.json").write_text(json.dumps(config), "utf-8")
    (drafter,) = plugin.mlxfill_draft_kinds()
    assert not drafter.detect(tmp_path)


# --- what does not fit -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"hidden_size": 32}, "is for hidden size 32, the target has 64"),
        ({"vocab_size": 100}, "is for a vocabulary of 100, the target has 64"),
        ({"num_target_layers": 7}, "is for a model of 7 layers, the target has 4"),
        (
            {"dflash_config": {"mask_token_id": 63, "target_layer_ids": [1, 9]}},
            "reads layers [1, 9], the target has layers 0 to 3",
        ),
        (
            {"dflash_config": {"mask_token_id": 63, "target_layer_ids": [-1, 2]}},
            "reads layers [-1, 2], the target has layers 0 to 3",
        ),
        ({"intermediate_size": 90}, "its config.json says [90, 64]"),
        ({"num_hidden_layers": 1}, "holds the tensor 'layers.1."),
        ({"num_hidden_layers": 3}, "lacks the tensor 'layers.2."),
        ({"dflash_config": {"target_layer_ids": [0, 1]}}, "lacks 'mask_token_id'"),
        ({"dflash_config": {"mask_token_id": 63}}, "lacks 'target_layer_ids'"),
        (
            {"dflash_config": {"mask_token_id": 63, "target_layer_ids": []}},
            "target_layer_ids must name layers of the target, not []",
        ),
        (
            {"dflash_config": {"mask_token_id": 64, "target_layer_ids": [0, 1]}},
            "mask_token_id 64 is no id of a vocabulary of 64",
        ),
        ({"block_size": 1}, "block_size 1 leaves no token to draft"),
        ({"block_size": "many"}, "'many'"),
        ({"num_attention_heads": 0}, "num_attention_heads"),
        ({"layer_types": ["full_attention"]}, "layer_types must name 2 layers"),
        (
            {"layer_types": ["sliding_attention", "full_attention"]},
            "sliding_attention in layer_types, but no sliding_window",
        ),
    ],
)
def test_a_wrong_pair_is_refused_in_one_line(
    release: Release, tmp_path: Path, target: Any, changes: dict[str, Any], said: str
) -> None:
    folder = release(tmp_path / "drafter", "dflash", **changes)
    with pytest.raises(DrafterError) as caught:
        load_provider(folder, target)
    line = str(caught.value)
    assert said in line
    assert str(folder) in line
    assert "\n" not in line


@pytest.mark.parametrize("left", [0, 5, 0.5, 0.99])
def test_a_truncated_file_is_named(
    release: Release, tmp_path: Path, target: Any, left: float
) -> None:
    file = release(tmp_path / "drafter", "dflash") / "model.safetensors"
    whole = file.read_bytes()
    file.write_bytes(whole[: int(left if left > 1 else left * len(whole))])
    with pytest.raises(DrafterError, match=r"model\.safetensors is no whole safetensors file"):
        load_provider(file.parent, target)


def test_a_folder_without_weights(release: Release, tmp_path: Path, target: Any) -> None:
    folder = release(tmp_path / "drafter", "dflash")
    (folder / "model.safetensors").unlink()
    with pytest.raises(DrafterError, match=r"has no \*\.safetensors"):
        load_provider(folder, target)


def test_both_sides_are_named(release: Release, tmp_path: Path) -> None:
    small = tiny_folder(tmp_path / "small", "llama", num_hidden_layers=4, hidden_size=32)
    folder = release(tmp_path / "drafter", "dflash")
    with pytest.raises(DrafterError) as caught:
        mlxfill.load(str(small), draft=str(folder), plugins=["spec-dflash"])
    assert str(small) in str(caught.value)
    assert str(folder) in str(caught.value)


def test_a_closed_drafter_says_so(folders: dict[str, Path], target: Any) -> None:
    provider = load_provider(folders["dflash"], target)
    provider.close()
    with pytest.raises(DrafterError, match="closed"):
        provider.open(target, [], [])
