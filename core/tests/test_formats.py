"""What lies in a folder is named for what it is, from its config and the names of its tensors."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import pytest

import mlxfill
from mlxfill import DrafterError, MlxfillError, PluginError
from mlxfill_testing import engine_with, shared_model, tiny_folder

if TYPE_CHECKING:
    from pathlib import Path


def folder_of(path: Path, config: Any, *tensors: str, files: tuple[str, ...] = ()) -> Path:
    """A folder with a config, weights of these names, and other files."""
    path.mkdir(parents=True, exist_ok=True)
    if config is not None:
        (path / "config.json").write_text(json.dumps(config), "utf-8")
    if tensors:
        weights = {name: mx.zeros(1) for name in tensors}
        mx.save_safetensors(str(path / "model.safetensors"), weights)
    for file in files:
        (path / file).write_text("{}", "utf-8")
    return path


DRAFTERS: list[tuple[dict[str, Any], tuple[str, ...], str]] = [
    (
        {"model_type": "qwen3", "architectures": ["DFlashDraftModel"], "dflash_config": {}},
        (),
        "a DFlash block drafter",
    ),
    ({"model_type": "qwen3", "dflash_config": {}}, (), "a DFlash block drafter"),
    ({"speculators_model_type": "dflash", "model_type": "x"}, (), "a DFlash block drafter"),
    ({"model_type": "qwen3", "architectures": ["Qwen3DSparkModel"]}, (), "a DSpark drafter"),
    (
        {"model_type": "llama", "architectures": ["LlamaForCausalLMEagle3"]},
        (),
        "an EAGLE-3 draft head",
    ),
    ({"model_type": "llama"}, ("midlayer.hidden_norm.weight", "d2t"), "an EAGLE-3 draft head"),
    ({"speculators_model_type": "eagle3", "speculators_config": {}}, (), "an EAGLE-3 draft head"),
    (
        {"model_type": "llama", "architectures": ["EagleLlamaForCausalLM"]},
        (),
        "an EAGLE draft head",
    ),
    ({"model_type": "llama"}, ("fc.weight", "layers.0.mlp.up_proj.weight"), "an EAGLE draft head"),
    ({"speculators_model_type": "peagle"}, (), "a P-EAGLE draft head"),
    ({"medusa_num_heads": 5, "medusa_num_layers": 1}, (), "a set of Medusa heads"),
    ({"model_type": "llama", "hydra_num_heads": 4}, (), "a set of Hydra heads"),
    ({"architectures": ["MLPSpeculatorPreTrainedModel"]}, (), "an MLP speculator"),
    ({"model_type": "gemma4_assistant"}, (), "a Gemma 4 assistant drafter"),
    ({"model_type": "gemma4_unified_assistant"}, (), "a Gemma 4 assistant drafter"),
    ({"model_type": "deepseek_mtp"}, (), "an MTP head"),
    (
        {"model_type": "deepseek_v3", "architectures": ["DeepSeekMTPModel"]},
        (),
        "an MTP head",
    ),
    (
        {"speculators_config": {"algorithm": "new"}, "model_type": "llama"},
        (),
        "a drafter in the format of speculators",
    ),
    ({"model_type": "bert"}, (), "an encoder, which writes no text"),
    (
        {"model_type": "qwen3", "architectures": ["Qwen3ForSequenceClassification"]},
        (),
        "an encoder, which writes no text",
    ),
    ({"model_type": "t5"}, (), "an encoder-decoder model"),
    ({"model_type": "llama", "is_encoder_decoder": True}, (), "an encoder-decoder model"),
    ({"model_type": "siglip_vision_model"}, (), "a vision tower"),
    ({"model_type": "wav2vec2"}, (), "an audio model"),
    (
        {"model_type": "nobody_has_it"},
        (),
        "a nobody_has_it model, an architecture that mlx-lm does",
    ),
    ({"model_type": 5}, (), "a folder whose config.json names no model_type"),
    ({}, (), "a folder whose config.json names no model_type"),
]


LOADED_BY = {
    "a DFlash block drafter": "spec-dflash",
    "a DSpark drafter": "spec-dflash",
}
"""Plugins of this project; what is not listed is loaded by nobody."""


@pytest.mark.parametrize(("config", "tensors", "name"), DRAFTERS)
def test_a_folder_that_nobody_who_is_on_drafts_with_is_named(
    config: dict[str, Any], tensors: tuple[str, ...], name: str, tmp_path: Path
) -> None:
    folder = folder_of(tmp_path / "draft", config, *(tensors or ("norm.weight",)))
    with pytest.raises(MlxfillError) as caught:
        engine_with(shared_model("llama"), draft=folder)
    said, plugin = str(caught.value), LOADED_BY.get(name)
    assert "\n" not in said
    if plugin is None:
        assert said.startswith(f"{folder} is {name}")
        assert "; no installed plugin loads it" in said
    else:
        assert said.startswith(f"no plugin that is on can draft with {folder} ")
        assert f"; it is {name}: " in said
        assert plugin in said.replace("spec_", "spec-").replace("_", "-")


@pytest.mark.parametrize(
    ("files", "name"),
    [
        ((), "an empty folder"),
        (("adapter_config.json", "adapters.safetensors"), "an adapter, not a model of its own"),
        (("model-Q4_K_M.gguf",), "a model in GGUF, which mlx-lm does not read"),
        (("pytorch_model.bin",), "weights of PyTorch without *.safetensors"),
        (("medusa_lm_head.pt",), "weights of PyTorch without *.safetensors"),
        (("model.onnx",), "a model in ONNX, which mlx-lm does not read"),
        (("README.md",), "a folder without config.json"),
    ],
)
def test_a_folder_of_other_files_is_named(
    files: tuple[str, ...], name: str, tmp_path: Path
) -> None:
    folder = folder_of(tmp_path / "draft", None, files=files)
    assert mlxfill.folder_format(folder).name == name
    with pytest.raises(DrafterError, match=r"; no installed plugin loads it"):
        engine_with(shared_model("llama"), draft=folder)
    said = "is it a model folder" if "README.md" in files else re.escape(name)
    with pytest.raises(mlxfill.ModelNotFoundError, match=said):
        mlxfill.load(folder, plugins=[], config={})


@pytest.mark.parametrize("file", ["model.gguf", "pytorch_model.bin"])
def test_weights_of_others_beside_a_config_are_named(file: str, tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "model", {"model_type": "llama"}, files=(file,))
    assert not mlxfill.folder_format(folder).is_model


@pytest.mark.parametrize("content", [b"no json", b"[]", b"\xff\xfe", b"[" * 100000, b"5"])
def test_a_config_that_cannot_be_read_is_no_model(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(content)
    assert mlxfill.folder_format(tmp_path).name == "a folder whose config.json cannot be read"


def test_a_language_model_is_one_whatever_lies_beside_it(tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path / "model")
    assert mlxfill.folder_format(folder).is_model
    (folder / "model.gguf").write_text("x")
    assert mlxfill.folder_format(folder).is_model
    (folder / "modules.json").write_text("[]")
    assert mlxfill.folder_format(folder).name == "an embedding model, which writes no text"
    (folder / "model.safetensors").write_bytes(b"broken")  # what loads it says what is wrong
    (folder / "modules.json").unlink()
    assert mlxfill.folder_format(folder).is_model


def test_what_is_no_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    assert mlxfill.folder_format(tmp_path / "file").name == "no folder"
    assert mlxfill.folder_format(tmp_path / "nothing").key == "nothing"
    with pytest.raises(mlxfill.ModelNotFoundError, match="is a file; a model is a folder"):
        engine_with(shared_model("llama"), draft=tmp_path / "file")


@pytest.mark.parametrize(
    ("config", "remedy"),
    [
        ({"model_type": "llama"}, "it is a language model: .*spec-two-model"),
        ({"model_type": "qwen3_5_mtp"}, "MTP head of the Qwen3.5 family: .*spec-qwen-mtp"),
    ],
)
def test_the_plugin_that_would_load_it_is_named(
    config: dict[str, Any], remedy: str, tmp_path: Path
) -> None:
    folder = folder_of(tmp_path / "draft", config, "norm.weight")
    with pytest.raises(PluginError, match=f"no plugin that is on can draft with .*{remedy}"):
        engine_with(shared_model("llama"), draft=folder)


# --- heads in the model's own folder ----------------------------------------------------------

QWEN: dict[str, Any] = {"model_type": "qwen3_5", "text_config": {"num_hidden_layers": 2}}


def loader(config: dict[str, Any]) -> str:
    """What is said of who mounts the head of such a model: a plugin's word, or nobody."""
    return "qwen" if config["model_type"] == "qwen3_5" else "no installed plugin loads it"


def told(folder: Path, **options: Any) -> list[str]:
    """What an engine says of drafting when it is made."""
    with engine_with(shared_model("llama"), path=folder, **options) as engine:
        return [fault.message for fault in engine.faults if fault.where == "draft"]


@pytest.mark.parametrize(
    ("config", "tensors"),
    [
        (QWEN, ("mtp.fc.weight", "mtp.layers.0.mlp.up_proj.weight")),
        ({**QWEN, "mtp_num_hidden_layers": 1}, ("mtp.fc.weight",)),
        (QWEN, ("language_model.mtp.fc.weight",)),
        (QWEN, ("model.mtp.fc.weight",)),
        (QWEN, ("model.mtp_layers.0.input_proj.weight",)),
        (QWEN, ("model.language_model.mtp.layers.0.norm.weight",)),
        ({"model_type": "mimo", "num_hidden_layers": 2}, ("model.mtp_layers.0.norm.weight",)),
        (
            {"model_type": "deepseek_v3", "num_hidden_layers": 2, "num_nextn_predict_layers": 1},
            ("model.layers.2.eh_proj.weight",),
        ),
        ({"model_type": "glm4_moe", "num_hidden_layers": 2}, ("model.layers.3.enorm.weight",)),
        (
            {"model_type": "x", "text_config": {"num_hidden_layers": 2}},
            ("language_model.model.layers.2.hnorm.weight",),
        ),
    ],
)
@pytest.mark.parametrize("indexed", [True, False])
def test_a_head_among_the_weights_is_told_once(
    config: dict[str, Any], tensors: tuple[str, ...], tmp_path: Path, *, indexed: bool
) -> None:
    own = ("model.layers.0.mlp.weight", "model.layers.1.mlp.weight", "vision.layers.9.weight")
    folder = folder_of(tmp_path / "model", config, *own, *tensors)
    if indexed:
        names = dict.fromkeys((*own, *tensors), "model.safetensors")
        index = folder / "model.safetensors.index.json"
        index.write_text(json.dumps({"weight_map": names}), "utf-8")
    (line,) = told(folder)
    said = f"an MTP head of {len(tensors)} tensors in model.safetensors ({tensors[0]}, ...)"
    assert line.startswith(f"{folder} holds {said}, which is not used: ")
    assert loader(config) in line.rpartition(": ")[2]
    assert told(folder, num_draft_tokens=0) == []


@pytest.mark.parametrize(
    "file",
    ["mtp.safetensors", "model-mtp.safetensors", "mtp/weights.safetensors", "mtp/a.safetensors"],
)
def test_a_head_in_a_file_of_its_own_is_told(file: str, tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "model", {**QWEN, "num_nextn_predict_layers": 1}, "norm.weight")
    (folder / "mtp").mkdir()
    mx.save_safetensors(str(folder / file), {"fc.weight": mx.zeros(1)})
    (line,) = told(folder)
    said = f"an MTP head of 1 tensors in {file} (fc.weight, ...)"
    assert line.startswith(f"{folder} holds {said}, which is not used: ")
    assert "qwen" in line.rpartition(": ")[2]


def test_a_model_with_a_head_beside_it_is_a_model(tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path / "model")
    mx.save_safetensors(str(folder / "mtp.safetensors"), {"fc.weight": mx.zeros(1)})
    assert mlxfill.folder_format(folder).is_model


def test_a_head_that_the_plugin_for_it_would_mount_names_the_plugin(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "model", QWEN, "norm.weight")
    folder_of(folder / "mtp", {"model_type": "qwen3_5_mtp"}, "fc.weight")
    (line,) = told(folder)
    assert "in mtp/model.safetensors (fc.weight, ...), which is not used: " in line
    assert "spec-qwen-mtp" in line


@pytest.mark.parametrize("nested", [True, False])
@pytest.mark.parametrize("key", ["mtp_num_hidden_layers", "num_nextn_predict_layers"])
def test_a_head_that_is_promised_and_not_there_is_told(
    key: str, tmp_path: Path, *, nested: bool
) -> None:
    text = {"num_hidden_layers": 2, key: 1}
    config = {"model_type": "qwen3_5", **({"text_config": text} if nested else text)}
    (line,) = told(folder_of(tmp_path / "model", config, "norm.weight"))
    assert f"promises an MTP head ({key} 1), its weights have none: " in line
    assert "mlxfill mtp split ORIGINAL_RELEASE HEAD, and --draft HEAD" in line
    others = {**config, "model_type": "glm4_moe"}
    (line,) = told(folder_of(tmp_path / "other", others, "norm.weight"))
    assert "its weights have none: " in line
    assert "qwen" not in line.rpartition(": ")[2]


def with_key(folder: Path, key: str, value: Any) -> Path:
    """The tiny model with another key in its config."""
    config = json.loads((tiny_folder(folder) / "config.json").read_text("utf-8"))
    (folder / "config.json").write_text(json.dumps({**config, key: value}), "utf-8")
    return folder


@pytest.mark.parametrize("value", [0, None, "1", True, -1, []])
def test_a_model_without_a_head_says_nothing(value: Any, tmp_path: Path) -> None:
    folder = with_key(tmp_path / "model", "num_nextn_predict_layers", value)
    with mlxfill.load(folder, plugins=[], config={}) as engine:
        assert engine.faults == []


def test_a_head_is_told_by_every_way_to_load(tmp_path: Path) -> None:
    folder = with_key(tmp_path / "model", "mtp_num_hidden_layers", 1)
    with mlxfill.load(folder, plugins=[], config={}) as engine:
        (fault,) = engine.faults
        assert engine.generate([3, 4], max_tokens=2).faults == [fault]
    assert "promises an MTP head" in fault.message
