"""Loading a model folder, with and without an adapter; what is wrong with one is named."""

from __future__ import annotations

import io
import json
import shutil
from typing import TYPE_CHECKING, Any, cast

import mlx.core as mx
import mlx_lm
import pytest
from mlx.utils import tree_flatten
from mlx_lm.tuner.utils import linear_to_lora_layers

import mlxfill
from mlxfill_testing import plain, reference_tokens, shared_model, tiny_folder, tiny_model
from mlxfill_testing.installed import HEADER

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mlxfill_testing.installed import FakeSite

PROMPT = [7, 30, 9, 30, 11, 4]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tiny_folder(tmp_path / "model")


def loaded(folder: Path, **options: Any) -> mlxfill.Engine:
    return mlxfill.load(folder, plugins=[], config={}, **options)


def test_a_folder_is_loaded_as_it_was_saved(folder: Path) -> None:
    with loaded(folder) as engine:
        result = engine.generate(PROMPT, max_tokens=12, eos_token_ids=())
        assert engine.context == 4096
        assert engine.tokenizer.eos_token_ids == {0}
    assert result.tokens == plain(shared_model("llama"), PROMPT, 12).tokens


def test_a_string_is_taken_as_it_is_and_messages_through_the_template(folder: Path) -> None:
    with loaded(folder) as engine:
        ids = engine.tokenizer.encode("the end", add_special_tokens=False)
        text = engine.generate("the end", max_tokens=6)
        assert text.tokens == engine.generate(ids, max_tokens=6).tokens
        chat = [{"role": "user", "content": "the end"}]
        whole = engine.tokenizer.encode("<user>the end<end><reply>", add_special_tokens=False)
        reply = engine.generate(chat, max_tokens=6)
        assert reply.tokens == engine.generate(whole, max_tokens=6).tokens
        assert reply.tokens == engine.generate(chat[0], max_tokens=6).tokens
        assert text.tokens == engine.generate(mx.array(ids), max_tokens=6).tokens


def kept_draws() -> str:
    """What mlx keeps of draws from its global random state that nobody computed."""
    graph, state = io.StringIO(), cast("Any", mx.random.state)
    mx.export_to_dot(graph, state[0])
    return graph.getvalue()


def test_loading_leaves_no_draws_uncomputed(folder: Path) -> None:
    """Fresh weights are drawn before loaded ones take their place; engines come and go."""
    mx.eval(mx.random.state)
    nothing = len(kept_draws())
    with loaded(folder):
        assert len(kept_draws()) == nothing


# --- adapters --------------------------------------------------------------------------------

LORA: dict[str, Any] = {
    "fine_tune_type": "lora",
    "num_layers": 2,
    "lora_parameters": {"rank": 4, "scale": 8.0, "dropout": 0.0},
}


@pytest.fixture
def adapter(tmp_path: Path) -> Path:
    """A LoRA adapter as mlx-lm's trainer leaves it, with weights that matter."""
    model = tiny_model("llama")
    model.freeze()
    linear_to_lora_layers(model, LORA["num_layers"], LORA["lora_parameters"])
    mx.random.seed(8)
    trained: Any = tree_flatten(model.trainable_parameters())
    weights = {name: mx.random.normal(w.shape) for name, w in trained}
    out = tmp_path / "adapter"
    out.mkdir()
    mx.save_safetensors(str(out / "adapters.safetensors"), weights)
    (out / "adapter_config.json").write_text(json.dumps(LORA))
    return out


def test_an_adapter_is_what_mlx_lm_makes_of_it(folder: Path, adapter: Path) -> None:
    theirs, *_ = mlx_lm.load(str(folder), adapter_path=str(adapter))
    expected = reference_tokens(theirs, PROMPT, 16)
    assert expected != plain(shared_model("llama"), PROMPT, 16).tokens
    with loaded(folder, adapter_path=str(adapter)) as engine:
        assert engine.target.split
        assert engine.generate(PROMPT, max_tokens=16, eos_token_ids=()).tokens == expected


def test_a_checkpoint_of_other_weights_says_how_they_were_loaded(
    folder: Path, adapter: Path, tmp_path: Path
) -> None:
    def left(**options: Any) -> Path:
        file = tmp_path / "reply.ckpt"
        with loaded(folder, **options) as engine:
            engine.generate(PROMPT, max_tokens=4, checkpoint=file)
        return file

    def said(file: Path, model: Path, **options: Any) -> str:
        with loaded(model, **options) as engine, pytest.raises(mlxfill.CheckpointError) as caught:
            engine.resume(file)
        return str(caught.value).removeprefix(f"{file} cannot be resumed: it ")

    with_it: dict[str, Any] = {"adapter_path": adapter}
    told = f"was written under the adapter {adapter}: load the model with adapter_path="
    assert said(left(**with_it), folder) == f"{told}'{adapter}'"
    told = f"was written without the adapter {adapter}: load the model without adapter_path"
    assert said(left(), folder, **with_it) == told
    moved = tmp_path / "moved"
    folder.rename(moved)
    told = f"is of another model ({folder}), with other weights"
    assert said(tmp_path / "reply.ckpt", moved, **with_it) == told
    moved.rename(folder)
    left(**with_it)
    folder.rename(moved)
    told = f"is of another model ({folder} with the adapter {adapter}), with other weights"
    assert said(tmp_path / "reply.ckpt", moved) == told


def test_a_checkpoint_of_weights_that_have_changed_is_of_the_same_model(folder: Path) -> None:
    file = folder / "reply.ckpt"
    with loaded(folder) as engine:
        engine.generate(PROMPT, max_tokens=4, checkpoint=file)
    shutil.copytree(tiny_folder(folder / "other", seed=1), folder, dirs_exist_ok=True)
    with loaded(folder) as engine, pytest.raises(mlxfill.CheckpointError) as caught:
        engine.resume(file)
    assert str(caught.value).endswith(f"it is of the same model ({folder}), with other weights")


def test_an_adapter_that_is_not_there_is_named(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(mlxfill.ModelNotFoundError, match="nowhere: no adapter_config"):
        loaded(folder, adapter_path=str(tmp_path / "nowhere"))


def bad_json(adapter: Path) -> None:
    (adapter / "adapter_config.json").write_text("{bad")


def no_object(adapter: Path) -> None:
    (adapter / "adapter_config.json").write_text("[]")


def of_peft(adapter: Path) -> None:
    (adapter / "adapter_config.json").write_text('{"peft_type": "LORA", "r": 8}')


def without_scale(adapter: Path) -> None:
    config = {**LORA, "lora_parameters": {"rank": 4, "alpha": 8.0}}
    (adapter / "adapter_config.json").write_text(json.dumps(config))


def cut_adapter(adapter: Path) -> None:
    file = adapter / "adapters.safetensors"
    file.write_bytes(file.read_bytes()[:1000])


def no_adapter_weights(adapter: Path) -> None:
    (adapter / "adapters.safetensors").unlink()


def of_another_rank(adapter: Path) -> None:
    config = {**LORA, "lora_parameters": {**LORA["lora_parameters"], "rank": 7}}
    (adapter / "adapter_config.json").write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (bad_json, r"adapter\S* cannot be read as JSON: Expecting property name"),
        (no_object, r"adapter_config.json is no JSON object: it is not of the form that mlx-lm's"),
        (of_peft, r"adapter_config.json has no num_layers: it is not of the form that mlx-lm's"),
        (without_scale, r"adapter_config.json has no lora_parameters.scale: it is not of the form"),
        (cut_adapter, "adapters.safetensors is no whole safetensors file"),
        (no_adapter_weights, "no adapters.safetensors there"),
        (
            of_another_rank,
            r"fit this model: [^;]+: adapter shape \(64, 4\) [^;]+ \(64, 7\); [^;]+; and \d+ more",
        ),
    ],
)
def test_a_broken_adapter_is_named_in_one_line(
    folder: Path, adapter: Path, damage: Callable[[Path], None], named: str
) -> None:
    damage(adapter)
    with loaded(folder) as engine:
        expected = engine.generate(PROMPT, max_tokens=6).tokens
        with pytest.raises(mlxfill.ModelError, match=named) as mounting:
            engine.mount_adapter("sql", adapter)
        assert engine.generate(PROMPT, max_tokens=6).tokens == expected
    with pytest.raises(mlxfill.ModelError, match=named) as loading:
        loaded(folder, adapter_path=str(adapter))
    assert str(loading.value) == str(mounting.value)
    assert str(loading.value).startswith(f"adapter {adapter}")
    assert "\n" not in str(loading.value)


# --- what is wrong with a folder -------------------------------------------------------------


def no_config(folder: Path) -> None:
    (folder / "config.json").unlink()


def no_json(folder: Path) -> None:
    (folder / "config.json").write_text("{")


def no_type(folder: Path) -> None:
    (folder / "config.json").write_text("{}")


def unknown_type(folder: Path) -> None:
    (folder / "config.json").write_text('{"model_type": "abacus"}')


def no_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (
            "Got: ConnectError: [Errno -2] Name or service not known\nAn error happened.\nPlease",
            "ConnectError: [Errno -2] Name or service not known",
        ),
        ("404 Client Error. (Request ID: a)\n\nRepository Not Found for url: u.\nPlease", None),
        ("", "OSError"),
    ],
)
def test_what_the_hub_says_is_one_short_line(
    said: str, shown: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: str) -> str:
        raise OSError(said)

    monkeypatch.setattr("mlx_lm.utils._download", refuse)
    with pytest.raises(mlxfill.ModelNotFoundError) as caught:
        mlxfill.load("someone/model", plugins=[])
    cause = shown or "Repository Not Found for url: u."
    line = f"no folder 'someone/model', and the model hub did not give it: {cause}"
    assert str(caught.value) == line


def cut_weights(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:1000])


def no_shard(folder: Path) -> None:
    index = {"weight_map": {"a": "model.safetensors", "b": "model-00002-of-00002.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def no_weight_map(folder: Path) -> None:
    (folder / "model.safetensors.index.json").write_text('[{"weight_map": {}}]')


def no_file_names(folder: Path) -> None:
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {"a": null}}')


def other_shape(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "hidden_size": 32}))


def no_tokenizer(folder: Path) -> None:
    for file in folder.glob("tokenizer*"):
        file.unlink()


def no_vocabulary(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()


def empty_vocabulary(folder: Path) -> None:
    file = folder / "tokenizer.json"
    held = json.loads(file.read_text())
    held["model"] |= {"vocab": {}, "merges": []}
    file.write_text(json.dumps(held))


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (no_config, "no config.json"),
        (no_json, "config.json cannot be read as JSON"),
        (no_type, "config.json names no model_type"),
        (unknown_type, "abacus"),
        (no_weights, r"no model\*.safetensors"),
        (cut_weights, "model.safetensors is no whole safetensors file"),
        (no_shard, "lacks the shard model-00002-of-00002.safetensors"),
        (no_weight_map, "has no weight_map of tensors and files"),
        (no_file_names, "has no weight_map of tensors and files"),
        (other_shape, "weight"),
        (no_tokenizer, r"has no tokenizer.json \(nor tokenizer.model\): copy the tokenizer's"),
        (no_vocabulary, r"has no tokenizer.json \(nor tokenizer.model\): copy the tokenizer's"),
        (empty_vocabulary, "its tokenizer finds no token in plain text"),
    ],
)
def test_a_damaged_folder_is_named_in_one_line(
    folder: Path, damage: Callable[[Path], None], named: str
) -> None:
    damage(folder)
    with pytest.raises(mlxfill.ModelError, match=named) as caught:
        loaded(folder)
    message = str(caught.value)
    assert "\n" not in message
    assert str(folder) in message


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("no/such/folder", "no model folder"),
        ("./nowhere", "no model folder"),
        ("~nobody-of-that-name/x", "no model folder '~nobody-of-that-name/x': Could not"),
        ("x" * 5000, "^no model folder 'x{120}': File name too long$"),
        ("tiny", "pip install mlxfill-model-tiny"),
    ],
    ids=["folder", "here", "home", "long", "plugin"],
)
def test_a_model_that_is_nowhere_is_named(
    name: str, named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    from mlxfill.loading.model import find_model

    with pytest.raises(mlxfill.ModelNotFoundError, match=named):
        find_model(name, lambda _: None)


@pytest.mark.parametrize("key", ["model", "draft", "draft_kind"])
def test_an_empty_name_is_no_default(folder: Path, key: str) -> None:
    with pytest.raises(mlxfill.ConfigError, match=f"{key} is empty"):
        mlxfill.load(folder, config={key: ""})
    options: dict[str, Any] = {"model": folder, "plugins": [], "config": {}, key: ""}
    with pytest.raises((mlxfill.ModelError, mlxfill.PluginError), match=r"is empty|draft kind ''"):
        mlxfill.load(**options)


def test_a_file_is_no_model(folder: Path) -> None:
    with pytest.raises(FileNotFoundError, match="is a file; a model is a folder"):
        loaded(folder / "config.json")


def test_a_folder_may_be_moved(folder: Path, tmp_path: Path) -> None:
    shutil.move(folder, tmp_path / "elsewhere")
    with loaded(tmp_path / "elsewhere") as engine:
        assert engine.target.path == tmp_path / "elsewhere"


def test_a_plugin_that_failed_to_look_for_the_model_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, site: FakeSite
) -> None:
    monkeypatch.chdir(tmp_path)
    hook = "@mlxfill.hookimpl\ndef mlxfill_resolve_model(name): return {}[name]\n"
    site.add("zz-broken", HEADER + hook)
    said = (
        r"^no model folder 'nowhere'.*; plugin 'zz-broken' failed: KeyError: 'nowhere' \(mlxfill_zz"
    )
    with pytest.raises(mlxfill.ModelNotFoundError, match=said):
        mlxfill.load("nowhere", plugins=["zz-broken"])
