"""Whatever stands in a config file, the answer is a config or one line for each mistake."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlxfill import Config, ConfigError, load_config

UNTIMED = settings(deadline=None)
KEYS = ["model", "draft", "num_draft_tokens", "plugins", "generation", "trust", "gate", "enabled"]
KEYS += [
    "seed",
    "max_tokens",
    "temperature",
    "kv_bits",
    "assert",
    "fill-echo",
    "k",
    "modl",
    "é",
    "",
]
VALUES = st.recursive(
    st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from([0, 1, 4, 64, 0.5, "tiny", "fill-echo"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=12,
)
TABLES = st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=4), VALUES, max_size=6)
GENERATION = st.fixed_dictionaries(
    {},
    optional={
        "max_tokens": st.integers(min_value=-1),
        "temperature": st.floats(0, 100),
        "top_p": st.floats(0, 1),
        "top_k": st.integers(min_value=0),
        "min_p": st.floats(0, 1),
        "seed": st.integers(0, 2**63 - 1),
        "max_kv_size": st.integers(min_value=1),
        "kv_bits": st.sampled_from([2, 3, 4, 6, 8]),
        "max_span": st.integers(min_value=2),
    },
)
NAMES = st.text("abcdefghij-", min_size=1, max_size=8)
LEGAL = st.fixed_dictionaries(
    {},
    optional={
        "model": st.text(min_size=1),
        "num_draft_tokens": st.integers(min_value=0),
        "generation": GENERATION,
        "trust": st.fixed_dictionaries({"assert": st.lists(NAMES)}),
        "gate": st.fixed_dictionaries({"enabled": st.booleans()}),
        "plugins": st.dictionaries(
            NAMES, st.dictionaries(NAMES, st.integers(), min_size=1)
        ).flatmap(lambda tables: st.lists(NAMES).map(lambda names: {"enabled": names, **tables})),
    },
)


def toml(value: Any) -> str:
    """Write ``value`` inline; JSON is TOML but for tables and DEL."""
    if isinstance(value, dict):
        pairs = (f"{toml(key)} = {toml(inner)}" for key, inner in value.items())
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(toml, value))}]"
    if isinstance(value, float):
        return repr(value)
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def document(table: dict[str, Any]) -> str:
    return "\n".join(f"{toml(key)} = {toml(value)}" for key, value in table.items())


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("config") / "any.toml"


def check(path: Path, environ: dict[str, str]) -> None:
    try:
        config = load_config(path, environ=environ)
    except ConfigError as error:
        lines = str(error).splitlines()
        assert lines
        assert all(line.startswith((str(path), "MLXFILL_")) for line in lines), lines
    else:
        assert isinstance(config, Config)


@UNTIMED
@given(LEGAL)
def test_a_legal_file_says_the_same_as_a_mapping(path: Path, table: dict[str, Any]) -> None:
    path.write_text(document(table), "utf-8")
    from_file = load_config(path, environ={})
    assert from_file == load_config(table)
    for key, value in table.get("generation", {}).items():
        assert getattr(from_file.generation, key) == value
        assert from_file.sources[f"generation.{key}"] == str(path)


@UNTIMED
@given(TABLES)
def test_any_toml_is_a_config_or_its_mistakes(path: Path, table: dict[str, Any]) -> None:
    path.write_text(document(table), "utf-8", errors="replace")
    check(path, {})


@UNTIMED
@given(st.text() | st.text('[]{}=".,\n#plugins enabled1-'))
def test_any_text_is_a_config_or_one_mistake(path: Path, text: str) -> None:
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    check(path, {})


@UNTIMED
@given(st.binary())
def test_any_bytes_are_a_config_or_one_mistake(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    check(path, {})


@UNTIMED
@given(
    st.dictionaries(
        st.sampled_from(KEYS).flatmap(
            lambda section: st.sampled_from(KEYS).map(
                lambda key: f"MLXFILL_{section}__{key}".upper().replace("-", "_")
            )
        ),
        st.text(),
    )
)
def test_any_variables_are_a_config_or_their_mistakes(path: Path, environ: dict[str, str]) -> None:
    path.write_text("", "utf-8")
    check(path, environ)
