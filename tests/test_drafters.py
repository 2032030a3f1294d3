"""Which drafters there are for a model, and what is said of one that does not fit it."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import pytest
from huggingface_hub import constants
from hypothesis import given, settings
from hypothesis import strategies as st

import mlxfill
from mlxfill import DrafterError, PluginManager, load_config
from mlxfill.cli import main
from mlxfill.drafters.find import FoundDrafter, find_drafters
from mlxfill.drafters.names import normal, published_pairs
from mlxfill.loading.formats import FORMATS
from mlxfill_model_tiny.folders import FOLDERS

if TYPE_CHECKING:
    from collections.abc import Callable

DRAFTING = ["spec-two-model", "spec-qwen-mtp", "spec-dflash"]
BLOCKS: dict[str, Any] = {
    "model_type": "qwen3",
    "architectures": ["DFlashDraftModel"],
    "block_size": 6,
    "dflash_config": {"mask_token_id": 3, "target_layer_ids": [0, 1]},
}
HEAD = json.loads((FOLDERS["tiny-mtp"] / "config.json").read_text("utf-8"))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty hub cache."""
    folder = tmp_path / "hub"
    folder.mkdir()
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(folder))
    return folder


def copied(source: str, folder: Path, card: str = "", **changes: Any) -> Path:
    """A folder with the files of a shipped model; ``changes`` to its config, and a model card."""
    folder.mkdir(parents=True)
    for file in FOLDERS[source].iterdir():
        (folder / file.name).symlink_to(file)
    if changes:
        config = json.loads((folder / "config.json").read_text("utf-8"))
        (folder / "config.json").unlink()
        (folder / "config.json").write_text(json.dumps({**config, **changes}), "utf-8")
    if card:
        (folder / "README.md").write_text(f"---\n{card}\n---\ntext\n", "utf-8")
    return folder


def in_cache(cache: Path, name: str) -> Path:
    return cache / f"models--{name.replace('/', '--')}" / "snapshots" / "0123"


def found(name: str, target: Path | None, plugins: list[str] | None = None) -> list[FoundDrafter]:
    manager = PluginManager.load(load_config({}), DRAFTING if plugins is None else plugins)
    return find_drafters(manager, name, target)


def told(name: str, target: Path | None) -> dict[str, str]:
    """Where each drafter lies that is not the shipped one, by its name, or why it does not fit."""
    return {
        each.name.rpartition("/")[2]: each.misfit or each.where
        for each in found(name, target)
        if each.name not in FOLDERS
    }


# --- where they lie ---------------------------------------------------------------------------


def test_drafters_of_plugins_are_found_by_their_names() -> None:
    listed = found("tiny", FOLDERS["tiny"])
    assert [(each.name, each.method, each.usable) for each in listed] == [
        ("tiny-dflash", "dflash", True),
        ("tiny-mtp", "qwen-mtp", True),
        ("tiny-draft", "two-model", True),
    ]
    names = [each.name for each in listed]
    assert [each.command for each in listed] == [
        f'mlxfill generate --model tiny --draft {name} "..."' for name in names
    ]
    assert [each.size for each in listed] == [
        (FOLDERS[name] / "model.safetensors").stat().st_size for name in names
    ]


def test_a_drafter_beside_the_model_is_found_and_one_that_does_not_fit_is_told(
    tmp_path: Path,
) -> None:
    target = copied("tiny", tmp_path / "models" / "Some-Model-4bit")
    copied("tiny-mtp", tmp_path / "models" / "head")
    wide = {**HEAD["text_config"], "hidden_size": 99}
    copied("tiny-mtp", tmp_path / "models" / "wide", text_config=wide)
    copied("tiny-mtp", tmp_path / "models" / "foreign", card="base_model: owner/Other-Model")
    copied("tiny-mtp", tmp_path / "models" / "named", card="base_model: owner/Some-Model")
    assert told("Some-Model-4bit", target) == {
        "head": "beside the model",
        "named": "beside the model",
        "wide": f"{tmp_path / 'models' / 'wide'} is for a hidden size of 99, {target} has"
        f" {HEAD['text_config']['hidden_size']}",
        "foreign": "it is made for other-model",
    }


@pytest.mark.parametrize(
    "card", ["base_model: owner/Some-Model", "base_model:\n- x/y\n- owner/some-model-8bit"]
)
def test_a_drafter_in_the_hub_cache_is_found_by_its_card(
    tmp_path: Path, cache: Path, card: str
) -> None:
    target = copied("tiny", tmp_path / "elsewhere" / "Some-Model-MLX-4bit")
    copied("tiny-mtp", in_cache(cache, "me/the-head"), card)
    copied("tiny-mtp", in_cache(cache, "me/others-head"), "base_model: owner/Another")
    copied("tiny-mtp", in_cache(cache, "me/nobodys-head"))
    assert told("Some-Model-MLX-4bit", target) == {"the-head": "in the hub cache"}
    assert told("owner/Some-Model", None) == {"the-head": "in the hub cache"}


@pytest.mark.parametrize(
    "config",
    [
        {"base_model": "owner/Some-Model"},
        {"speculators_config": {"verifier": {"name_or_path": "owner/Some-Model"}}},
        {"target_model_name_or_path": "owner/Some-Model-bf16"},
    ],
)
def test_a_drafter_in_the_hub_cache_is_found_by_its_config(
    cache: Path, config: dict[str, Any]
) -> None:
    target = copied("tiny", in_cache(cache, "owner/Some-Model-4bit"))
    copied("tiny-mtp", in_cache(cache, "me/the-head"), **config)
    assert told("owner/Some-Model-4bit", target) == {"the-head": "in the hub cache"}


def test_of_a_cached_model_the_main_branch_counts(cache: Path) -> None:
    for revision in ("0123", "4567", "89ab"):
        folder = in_cache(cache, "me/the-head").with_name(revision)
        copied("tiny-mtp", folder, "base_model: owner/Some-Model")
    refs = cache / "models--me--the-head" / "refs"
    refs.mkdir()
    (refs / "main").write_text("4567", "utf-8")
    (head,) = (each for each in found("owner/Some-Model", None) if each.folder)
    assert head.folder is not None
    assert head.folder.name == "4567"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 1 << 70) | st.floats() | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3)
    ),
    max_leaves=5,
)
KEYS = (
    *("model_type", "architectures", "base_model", "speculators_config", "hidden_size", "verifier"),
    *("num_target_layers", "dflash_config", "target_layer_ids", "text_config", "name_or_path"),
)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    st.dictionaries(st.sampled_from(KEYS), JSON | st.dictionaries(st.sampled_from(KEYS), JSON)),
    JSON | st.text(),
)
def test_whatever_lies_beside_a_model_nothing_breaks(config: Any, card: Any) -> None:
    with TemporaryDirectory() as made:
        target = copied("tiny", Path(made) / "model")
        folder = Path(made) / "other"
        folder.mkdir()
        text = json.dumps({"model_type": "dflash", "dflash_config": {}, **config})
        (folder / "config.json").write_text(text, "utf-8")
        written = card if isinstance(card, str) else f"---\nbase_model: {json.dumps(card)}\n---\n"
        (folder / "README.md").write_text(written, "utf-8", errors="replace")
        (folder / "model.safetensors").write_bytes(b"\x08\0\0\0\0\0\0\0{}      ")
        for each in found("tiny", target):
            assert "\n" not in each.misfit
            json.dumps(each.as_dict())


def test_a_smaller_model_with_the_same_tokenizer_is_a_draft_model(cache: Path) -> None:
    target = copied("tiny", in_cache(cache, "owner/Large"))
    copied("tiny-draft", in_cache(cache, "owner/Small"))
    other = copied("tiny-draft", in_cache(cache, "owner/Stranger"))
    (other / "tokenizer.json").unlink()
    (other / "tokenizer.json").write_text('{"model": {"vocab": {"a": 0}}}', "utf-8")
    copied("tiny", in_cache(cache, "owner/As-Large"))
    assert told("owner/Large", target) == {"Small": "in the hub cache"}


@pytest.mark.parametrize("place", ["mtp.safetensors", "mtp/weights.safetensors", "mtp/config"])
def test_a_head_in_the_folder_of_the_model_needs_no_option(tmp_path: Path, place: str) -> None:
    target = copied("tiny", tmp_path / "model")
    head = FOLDERS["tiny-mtp"] / "model.safetensors"
    if place == "mtp/config":
        copied("tiny-mtp", target / "mtp")
    else:
        (target / place).parent.mkdir(exist_ok=True)
        (target / place).symlink_to(head)
    inside = next(each for each in found("my model", target) if each.where.endswith("folder"))
    assert (inside.method, inside.usable) == ("qwen-mtp", True)
    assert inside.command == "mlxfill generate --model 'my model' \"...\""
    assert inside.size is not None
    assert 0.9 * head.stat().st_size < inside.size <= head.stat().st_size
    with mlxfill.load(target, plugins=DRAFTING[:2], config={}, draft="auto") as engine:
        assert engine.drafter is not None
        assert engine.drafter.plugin == inside.plugin
        assert "drafts with " in engine.faults[0].message


def test_what_no_plugin_that_is_on_loads_says_which_one_would() -> None:
    listed = found("tiny", FOLDERS["tiny"], plugins=[])
    assert [each.usable for each in listed] == [False, False, False]
    assert all(
        "spec" in each.command and ", then mlxfill generate" in each.command for each in listed
    )
    assert not any(each.plugin for each in listed)
    with mlxfill.load("tiny", plugins=[], config={}, draft="auto") as engine:
        (fault,) = engine.faults
    assert "no drafter for this model lies on this machine" in fault.message


@pytest.mark.parametrize(
    ("name", "drafters"),
    [
        ("Qwen/Qwen3-8B", {"z-lab/Qwen3-8B-DFlash-b16", "deepseek-ai/dspark_qwen3_8b_block7"}),
        ("mlx-community/Qwen3-8B-4bit", {"z-lab/Qwen3-8B-DFlash-b16"}),
        ("mlx-community/Meta-Llama-3.1-8B-Instruct-8bit", {"yuhuili/EAGLE3-LLaMA3.1-Instruct-8B"}),
        ("mlx-community/gemma-4-31b-it-bf16", {"google/gemma-4-31B-it-assistant"}),
    ],
)
def test_published_drafters_are_listed_without_any_download(name: str, drafters: set[str]) -> None:
    listed = {each.name: each for each in found(name, None)}
    assert drafters <= listed.keys()
    assert all(each.folder is None and not each.usable for each in listed.values())
    for each in listed.values():
        loaded = each.misfit != "no plugin loads its format"
        assert loaded == (each.method in {"dflash", "dspark"})
        assert loaded == (f"--draft {each.name}" in each.command)
    assert found("owner/Unheard-Of", None) == []


def test_a_published_drafter_that_is_in_the_cache_is_listed_once(cache: Path) -> None:
    copied("tiny-mtp", in_cache(cache, "z-lab/Qwen3-8B-DFlash-b16"))
    listed = [each for each in found("Qwen/Qwen3-8B", None) if "DFlash" in each.name]
    assert [each.where for each in listed] == ["in the hub cache"]


def test_the_table_of_published_pairs_is_sound() -> None:
    pairs = published_pairs()
    known = {known.key for known in FORMATS}
    assert len({pair.drafter for pair in pairs}) == len(pairs)
    for pair in pairs:
        assert pair.format in known
        assert pair.drafter.count("/") == pair.target.count("/") == 1


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("mlx-community/Qwen3-8B-4bit", "qwen3-8b"),
        ("Qwen3-30B-A3B-Instruct-2507-4bit-DWQ", "qwen3-30b-a3b-instruct-2507"),
        ("x/gpt-oss-20b-MXFP4-Q8", "gpt-oss-20b"),
        ("meta-llama/Meta-Llama-3.1-8B-Instruct", "llama-3.1-8b-instruct"),
        ("Qwen/Qwen3.5-35B-A3B-FP8", "qwen3.5-35b-a3b"),
        ("a/b-MLX-8bit", "b"),
        ("a/mlx-model", "mlx-model"),
    ],
)
def test_names_of_conversions_are_those_of_the_model(name: str, plain: str) -> None:
    assert normal(name) == plain


# --- auto -------------------------------------------------------------------------------------

ASK = [{"role": "user", "content": "List the files in src, please."}]
EVERY_GUESS = {"gate": {"enabled": False}}


@pytest.mark.parametrize("way", ["argument", "config"])
def test_auto_mounts_the_drafter_that_promises_most(way: str) -> None:
    config = {**EVERY_GUESS, **({"draft": "auto"} if way == "config" else {})}
    draft = "auto" if way == "argument" else None
    with mlxfill.load("tiny", plugins=DRAFTING, config=config, draft=draft) as engine:
        result = engine.generate(ASK, max_tokens=48, seed=1)
        assert "drafts with tiny-" in result.faults[0].message
        assert result.faults[0].notice
    assert result.stats.spec["accepted"] > 0
    with mlxfill.load("tiny", plugins=[], config={}) as plain:
        assert plain.generate(ASK, max_tokens=48, seed=1).tokens == result.tokens


@pytest.mark.parametrize("kind", ["two-model", "spec-qwen-mtp"])
def test_auto_keeps_to_the_kind_that_is_asked_for(kind: str) -> None:
    options: Any = {"draft": "auto", "draft_kind": kind, "config": EVERY_GUESS}
    with mlxfill.load("tiny", plugins=DRAFTING, **options) as engine:
        assert engine.drafter is not None
        assert kind in (engine.drafter.plugin, engine.drafter.kind.name)


def test_auto_passes_over_what_cannot_be_loaded_and_says_so(tmp_path: Path) -> None:
    target = copied("tiny", tmp_path / "models" / "model")
    head = copied("tiny-mtp", tmp_path / "models" / "a-head")
    (head / "model.safetensors").unlink()
    mx.save_safetensors(str(head / "model.safetensors"), {"fc.weight": mx.zeros((4, 4))})
    with mlxfill.load(target, plugins=["spec-qwen-mtp"], config={}, draft="auto") as engine:
        (fault,) = engine.faults
        assert engine.drafter is not None
    assert "drafts with tiny-mtp (qwen-mtp), of 2 that promised most; " in fault.message
    assert str(head) in fault.message
    with mlxfill.load(
        target, plugins=["spec-qwen-mtp"], config={}, draft="auto", num_draft_tokens=0
    ) as engine:
        assert engine.drafter is None
        assert engine.faults == []


# --- the commands -----------------------------------------------------------------------------


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: Any) -> Any:
    monkeypatch.chdir(tmp_path)

    def call(*words: str) -> tuple[int, str]:
        code = main(list(words))
        return code, capsys.readouterr().out

    return call


def test_the_command_lists_a_line_and_a_command_each(run: Callable[..., tuple[int, str]]) -> None:
    code, out = run("drafters", "tiny")
    assert code == 0
    lines = out.splitlines()
    at = lines.index("qwen-mtp: tiny-mtp, with a plugin, 1.1 MB")
    assert lines[at + 1] == '  mlxfill generate --model tiny --draft tiny-mtp "..."'
    assert run("drafters") == (0, out)
    code, out = run("drafters", "tiny", "--json")
    assert {each["name"] for each in json.loads(out)} >= {"tiny-mtp", "tiny-dflash"}
    code, out = run("drafters", "owner/Unheard-Of")
    assert (code, out.count("\n")) == (0, 1)
    assert "no drafter for owner/Unheard-Of is known" in out
    assert run("drafters", "no-such-folder")[0] == 1


def test_doctor_says_which_drafters_there_are(run: Callable[..., tuple[int, str]]) -> None:
    _, out = run("doctor", "--model", "tiny", "--json")
    (line,) = [hint for hint in json.loads(out)["hints"] if "can draft" in hint]
    assert "tiny-mtp" in line
    assert line.endswith("--draft auto, or see mlxfill drafters tiny")


# --- pairs that do not fit --------------------------------------------------------------------


def other_tokenizer(folder: Path) -> str:
    """The draft model with two words of its tokenizer exchanged; a word of what is said."""
    draft = copied("tiny-draft", folder)
    parsed = json.loads((draft / "tokenizer.json").read_text("utf-8"))
    vocabulary = parsed["model"]["vocab"]
    one, two = list(vocabulary)[40], list(vocabulary)[60]
    vocabulary[one], vocabulary[two] = vocabulary[two], vocabulary[one]
    (draft / "tokenizer.json").unlink()
    (draft / "tokenizer.json").write_text(json.dumps(parsed), "utf-8")
    return "token"


def other_width(folder: Path) -> str:
    """A head of another hidden size."""
    copied("tiny-mtp", folder, text_config={**HEAD["text_config"], "hidden_size": 99})
    return "99"


def other_count(folder: Path) -> str:
    """A head that says that its model has more layers."""
    copied("tiny-mtp", folder, num_target_layers=77)
    weights = {"fc.weight": mx.zeros((4, 4))}
    (folder / "model.safetensors").unlink()
    mx.save_safetensors(str(folder / "model.safetensors"), weights)
    return "77 layers"


def reads_too_far(folder: Path) -> str:
    """A block drafter that reads a layer that the model does not have."""
    folder.mkdir()
    mx.save_safetensors(str(folder / "model.safetensors"), {"fc.weight": mx.zeros((4, 4))})
    config = {"model_type": "qwen3", "dflash_config": {"target_layer_ids": [1, 50]}}
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    return "50"


def block_drafter(folder: Path, **changes: Any) -> Path:
    """A DFlash drafter as far as its config goes."""
    folder.mkdir()
    text = json.loads((FOLDERS["tiny"] / "config.json").read_text("utf-8"))["text_config"]
    sizes = {key: value for key, value in text.items() if isinstance(value, int)}
    config = {**sizes, "rms_norm_eps": 1e-6, **BLOCKS, **changes}
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    mx.save_safetensors(str(folder / "model.safetensors"), {"fc.weight": mx.zeros((4, 4))})
    return folder


def blocks_of_another_width(folder: Path) -> str:
    """A DFlash drafter for another hidden size."""
    block_drafter(folder, hidden_size=96)
    return "96"


def blocks_of_another_count(folder: Path) -> str:
    """One for a model of more layers."""
    block_drafter(folder, num_target_layers=77)
    return "77"


def blocks_that_read_too_far(folder: Path) -> str:
    """One that reads a layer that the model does not have."""
    block_drafter(folder, dflash_config={**BLOCKS["dflash_config"], "target_layer_ids": [1, 50]})
    return "50"


WRONG = [other_tokenizer, other_width, other_count, blocks_of_another_width]
WRONG += [blocks_of_another_count, blocks_that_read_too_far]


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_pair_names_both_sides_in_one_line(
    tmp_path: Path, wrong: Callable[[Path], str]
) -> None:
    drafter = tmp_path / "drafter"
    word = wrong(drafter)
    with pytest.raises(DrafterError) as caught:
        mlxfill.load("tiny", plugins=DRAFTING, config={}, draft=drafter)
    said = str(caught.value)
    assert "\n" not in said
    assert str(drafter) in said
    assert str(FOLDERS["tiny"]) in said
    assert word in said


@pytest.mark.parametrize("source", ["tiny-draft", "tiny-mtp"])
@pytest.mark.parametrize("kept", [0.0, 0.02, 0.5, 0.99])
def test_a_truncated_file_is_named(tmp_path: Path, source: str, kept: float) -> None:
    drafter = copied(source, tmp_path / "drafter")
    file = drafter / "model.safetensors"
    content = file.read_bytes()
    file.unlink()
    file.write_bytes(content[: int(kept * len(content))])
    with pytest.raises(DrafterError) as caught:
        mlxfill.load("tiny", plugins=DRAFTING, config={}, draft=drafter)
    assert "\n" not in str(caught.value)
    assert str(drafter) in str(caught.value)


@pytest.mark.parametrize("wrong", [other_width, other_count, reads_too_far])
def test_a_wrong_pair_is_listed_with_the_reason(
    tmp_path: Path, wrong: Callable[[Path], str]
) -> None:
    target = copied("tiny", tmp_path / "model")
    word = wrong(tmp_path / "drafter")
    (said,) = told("model", target).values()
    assert word in said
    assert str(tmp_path / "drafter") in said
    assert str(target) in said
