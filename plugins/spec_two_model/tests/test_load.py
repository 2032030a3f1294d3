"""A draft model from a folder: what fits, what is refused, in one line that names both sides."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import pytest
from mlx.utils import tree_flatten

from mlxfill import DrafterError, Engine, InputError, MlxfillError, Sampling, TargetView
from mlxfill.model.target import Target
from mlxfill.sampling import Chooser
from mlxfill_spec_two_model import TwoModelSettings, plugin
from mlxfill_spec_two_model.provider import load_provider
from mlxfill_testing import ARCHITECTURES, shared_model, tiny_model, tiny_tokenizer

PROMPT = [7, 21, 3, 40, 55, 3, 12]


def saved(folder: Path, model: Any, name: str, **config: Any) -> Path:
    """A model folder as mlx-lm's loader wants it."""
    folder.mkdir(parents=True)
    content = {**ARCHITECTURES[name], "model_type": name, **config}
    (folder / "config.json").write_text(json.dumps(content), "utf-8")
    weights: Any = dict(tree_flatten(model.parameters()))
    mx.save_safetensors(str(folder / "model.safetensors"), weights)
    tiny_tokenizer()._tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return saved(tmp_path / "draft", shared_model("llama"), "llama")


@pytest.fixture
def target(tmp_path: Path) -> Any:
    with Target(shared_model("llama"), tiny_tokenizer(), tmp_path / "target") as target:
        yield target


def load(folder: Path, target: TargetView) -> Any:
    return load_provider(folder, target, TwoModelSettings())


def engine_at(folder: Path, **options: Any) -> Engine:
    return Engine(
        shared_model("llama"),
        tiny_tokenizer(),
        plugins=["spec-two-model"],
        config={"gate": {"enabled": False}},
        draft=folder,
        **options,
    )


def test_a_folder_drafts_through_the_engine(folder: Path) -> None:
    with engine_at(folder) as engine:
        result = engine.generate(PROMPT, max_tokens=20, eos_token_ids=[])
    assert result.faults == []
    assert result.stats.spec["drafter"] == "spec-two-model"
    assert result.stats.spec["rejected"] == 0
    assert set(result.origins) == {"draft", "sampled"}
    assert len(result.stats.spec["drafted_by_position"]) == 3  # the default depth


def test_settings_come_from_the_config(folder: Path) -> None:
    config = {"gate": {"enabled": False}, "plugins": {"spec-two-model": {"greedy": True}}}
    with Engine(
        shared_model("llama"),
        tiny_tokenizer(),
        plugins=["spec-two-model"],
        config=config,
        draft=folder,
    ) as engine:
        options: dict[str, Any] = {"max_tokens": 30, "eos_token_ids": [], "temperature": 1.5}
        assert engine.generate(PROMPT, seed=1, **options).stats.spec["rejected"] > 0


def test_a_quantized_draft_is_loaded_as_mlx_lm_loads_it(tmp_path: Path, target: Any) -> None:
    model = tiny_model("llama")
    nn.quantize(model, group_size=32, bits=8)
    quantization = {"group_size": 32, "bits": 8}
    folder = saved(tmp_path / "q8", model, "llama", quantization=quantization)
    dense = saved(tmp_path / "dense", tiny_model("llama"), "llama")
    provider = load(folder, target)
    assert provider.weights_bytes < 0.5 * load(dense, target).weights_bytes
    rows = provider.open(target, [Chooser(Sampling(seed=1))], [None])
    rows.prefill(mx.array([PROMPT[:-1]]))
    assert rows.draft([PROMPT[-1]], 3, [len(PROMPT)]).shape == (1, 3)


def test_a_closed_drafter_is_refused(folder: Path, target: Any) -> None:
    provider = load(folder, target)
    provider.close()
    with pytest.raises(DrafterError, match="closed"):
        provider.open(target, [Chooser(Sampling(seed=1))], [None])


# --- refusals -------------------------------------------------------------------------------


def refusal(folder: Path, target: TargetView) -> str:
    with pytest.raises(DrafterError, match=r".") as caught:
        load(folder, target)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def with_other_letters(folder: Path) -> None:
    """The same vocabulary, two letters exchanged."""
    file = folder / "tokenizer.json"
    content = json.loads(file.read_text("utf-8"))
    vocabulary = content["model"]["vocab"]
    vocabulary["a"], vocabulary["z"] = vocabulary["z"], vocabulary["a"]
    file.write_text(json.dumps(content), "utf-8")


def test_a_foreign_tokenizer_is_refused_with_both_names(folder: Path, target: Any) -> None:
    with_other_letters(folder)
    message = refusal(folder, target)
    assert f"draft model {folder} encodes" in message
    assert f"target {target.path}" in message
    with pytest.raises(DrafterError, match="encodes"):
        engine_at(folder)


def test_a_target_without_a_folder_is_named_too(folder: Path) -> None:
    with_other_letters(folder)
    with Target(shared_model("llama"), tiny_tokenizer()) as target:
        assert "than the target:" in refusal(folder, target)


def test_other_special_tokens_are_noticed(folder: Path, target: Any) -> None:
    file = folder / "tokenizer.json"
    file.write_text(file.read_text("utf-8").replace("<end>", "<other>"), "utf-8")
    assert "'<end>'" in refusal(folder, target)


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json"])
def test_a_missing_file_is_named_with_the_folder(folder: Path, target: Any, name: str) -> None:
    (folder / name).unlink()
    if name == "tokenizer.json":
        (folder / "tokenizer_config.json").unlink()
    assert f"draft model {folder} cannot be loaded" in refusal(folder, target)


def test_broken_weights_are_refused(folder: Path, target: Any) -> None:
    (folder / "model.safetensors").write_bytes(b"nothing of the kind")
    assert f"draft model {folder} cannot be loaded" in refusal(folder, target)


def test_another_vocabulary_size_is_a_warning(tmp_path: Path, target: Any) -> None:
    folder = saved(tmp_path / "wide", tiny_model("llama", vocab_size=80), "llama", vocab_size=80)
    with pytest.warns(UserWarning, match=r"has 80 token ids, .* has 64: .* never proposed") as seen:
        load(folder, target)
    assert len(seen) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load(saved(tmp_path / "same", shared_model("llama"), "llama"), target)


# --- what is told apart ----------------------------------------------------------------------


def test_a_head_is_no_model(folder: Path, tmp_path: Path) -> None:
    (kind,) = plugin.mlxfill_draft_kinds()
    assert kind.detect(folder)
    assert kind.fallback
    assert not kind.detect(tmp_path)
    config = folder / "config.json"
    for content in ('{"model_type": "qwen3_5_mtp"}', "{}", "[]", "no json", '{"model_type": 3}'):
        config.write_text(content, "utf-8")
        assert not kind.detect(folder)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"dflash_config": {"mask_token_id": 3}}, "a DFlash block drafter"),
        ({"architectures": ["LlamaForCausalLMEagle3"]}, "an EAGLE-3 draft head"),
        ({"speculators_model_type": "eagle3"}, "an EAGLE-3 draft head"),
        ({"medusa_num_heads": 3}, "a set of Medusa heads"),
        ({"model_type": "gemma4_unified_assistant"}, "a Gemma 4 assistant drafter"),
        ({"model_type": "bert"}, "an encoder, which writes no text"),
    ],
)
def test_what_cannot_stand_alone_is_neither_claimed_nor_loaded(
    folder: Path, target: Any, change: dict[str, Any], name: str
) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text("utf-8")) | change), "utf-8")
    (kind,) = plugin.mlxfill_draft_kinds()
    assert not kind.detect(folder)
    assert refusal(folder, target) == f"draft model {folder} cannot be loaded: it is {name}"
    with pytest.raises(MlxfillError, match=f"is {name}(; no installed plugin loads it|: .*spec)"):
        engine_at(folder)
    with pytest.raises(DrafterError, match=f"draft model .* it is {name}"):
        engine_at(folder, draft_kind="two-model")


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"greedy": 1}, ["greedy", "true or false", "1"]),
        ({"filters": "no"}, ["filters", "true or false", "no"]),
        ({"temperature": 0}, ["temperature", "above 0", "0", "greedy"]),
        ({"temperature": -1.5}, ["temperature", "above 0", "-1.5"]),
        ({"temperature": True}, ["temperature", "True"]),
        ({"greedy": True, "temperature": 0.5}, ["greedy", "temperature 0.5"]),
    ],
)
def test_an_illegal_setting_gets_one_line_that_names_it(
    values: dict[str, Any], named: list[str]
) -> None:
    with pytest.raises(InputError, match=r".") as caught:
        TwoModelSettings(**values)
    message = str(caught.value)
    assert "\n" not in message
    assert [word for word in named if word not in message] == []


def test_namespaces_differ_with_every_setting() -> None:
    settings = [{}, {"greedy": True}, {"temperature": 0.5}, {"filters": False}]
    assert len({TwoModelSettings(**each).namespace for each in settings}) == 4  # type: ignore[arg-type]
