"""JSON files of a model: each value that is relied on is checked, and named when it is wrong."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import mlxfill
from mlxfill import ModelError
from mlxfill_testing import tiny_folder

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_folder(tmp_path_factory.mktemp("models") / "model")


def refusal(folder: Path, file: str, content: bytes) -> str:
    """The line about a folder in which one file is another, "" for a model that is loaded."""
    path = folder / file
    before = path.read_bytes() if path.exists() else None
    path.write_bytes(content)
    try:
        mlxfill.load(folder, plugins=[], config={}).close()
    except ModelError as error:
        (line,) = str(error).splitlines()
        return line
    else:
        return ""
    finally:
        path.unlink() if before is None else path.write_bytes(before)


def changed(folder: Path, file: str, **keys: Any) -> str:
    path = folder / file
    content = json.loads(path.read_text("utf-8")) if path.exists() else {}
    return refusal(folder, file, json.dumps({**content, **keys}).encode())


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("num_hidden_layers", "two"),
        ("num_hidden_layers", 10**6),
        ("num_hidden_layers", 2.0),
        ("vocab_size", 0),
        ("vocab_size", True),
        ("hidden_size", -64),
        ("hidden_size", 10**12),
        ("num_attention_heads", []),
        ("rope_scaling", ["linear"]),
        ("rope_parameters", 5),
        ("rope_theta", "big"),
        ("rms_norm_eps", float("nan")),
        ("tie_word_embeddings", "no"),
        ("eos_token_id", "</s>"),
        ("eos_token_id", [1, -1]),
        ("text_config", "llama"),
        ("quantization", True),
        ("quantization", []),
        ("quantization", 4),
        ("quantization_config", "q4"),
    ],
)
def test_a_wrong_value_is_named_with_file_and_key(folder: Path, key: str, value: Any) -> None:
    said = changed(folder, "config.json", **{key: value})
    assert said.startswith(f"{folder / 'config.json'}: {key} must be ")


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (
            {"bits": 5.5, "group_size": 64},
            "quantization.bits must be a whole number from 1 to 8, not 5",
        ),
        ({"bits": True, "group_size": 64}, "quantization.bits must be"),
        ({"bits": "4", "group_size": 64}, "quantization.bits must be"),
        ({"bits": [4], "group_size": 64}, "quantization.bits must be"),
        ({"bits": 4, "group_size": -1}, "quantization.group_size must be"),
        ({"bits": 4, "group_size": 64.0}, "quantization.group_size must be"),
        ({"bits": 4}, "quantization lacks group_size"),
        ({"group_size": 64}, "quantization lacks bits"),
        ({"bits": 4, "group_size": 64, "mode": 3}, "quantization.mode must be text"),
        (
            {"bits": 4, "group_size": 64, "lm_head": {"bits": 4.5}},
            "quantization.lm_head.bits must be",
        ),
    ],
)
def test_a_wrong_quantization_is_named(folder: Path, table: Any, said: str) -> None:
    assert changed(folder, "config.json", quantization=table).startswith(
        f"{folder / 'config.json'}: {said}"
    )


@pytest.mark.parametrize("value", [5, None, ["llama"], {}, True])
def test_a_model_type_that_is_none_is_named(folder: Path, value: Any) -> None:
    assert "config.json names no model_type" in changed(folder, "config.json", model_type=value)


@pytest.mark.parametrize(
    "content",
    [b"[]", b"5", b"null", b"no json", b"\xff\xfe\x00", b"", b"[" * 100000, b" " * (65 << 20)],
)
@pytest.mark.parametrize("file", ["config.json", "generation_config.json", "tokenizer_config.json"])
def test_a_file_that_is_no_object_is_named(folder: Path, file: str, content: bytes) -> None:
    assert refusal(folder, file, content).startswith(f"{folder / file} ")


@pytest.mark.parametrize(
    ("file", "key", "value"),
    [
        ("generation_config.json", "eos_token_id", "end"),
        ("generation_config.json", "eos_token_id", {}),
        ("tokenizer_config.json", "eos_token", 5),
        ("tokenizer_config.json", "model_max_length", "long"),
        ("tokenizer_config.json", "chat_template", 5),
        ("tokenizer_config.json", "tokenizer_class", []),
    ],
)
def test_a_wrong_value_of_another_file_is_named(
    folder: Path, file: str, key: str, value: Any
) -> None:
    assert changed(folder, file, **{key: value}).startswith(f"{folder / file}: {key} must be ")


def test_an_architecture_that_ends_the_process_is_one_line(folder: Path) -> None:
    """mlx-lm's file for OLMo calls ``exit`` where its library is not installed."""
    assert f"{folder} cannot be loaded: it is a olmo model" in changed(
        folder, "config.json", model_type="olmo"
    )


def test_an_error_of_another_kind_is_told_with_its_kind(folder: Path) -> None:
    said = changed(folder, "config.json", layer_types=5, num_attention_heads=7)
    assert said.startswith(f"{folder} cannot be loaded: ")


VALUES: tuple[Any, ...] = (
    *(None, True, 0, -1, 5.5, 10**12, float("nan"), "x", "", [], [1], {}, {"type": 3}),
)


@given(data=st.data())
@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_change_loads_or_is_one_line(folder: Path, data: st.DataObject) -> None:
    file = data.draw(st.sampled_from(["config.json", "tokenizer_config.json"]))
    keys = sorted(json.loads((folder / file).read_text("utf-8")))
    more = [
        "quantization",
        "rope_scaling",
        "layer_types",
        "sliding_window",
        "generation",
        "auto_map",
    ]
    key = data.draw(st.sampled_from([*keys, *more]))
    line = changed(folder, file, **{key: data.draw(st.sampled_from(VALUES))})
    assert not line or str(folder) in line
