"""Writing into a config file: these keys and nothing else."""

from __future__ import annotations

import resource
import stat
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mlxfill
from mlxfill_bench.settling import settle, settled_text

FULL = """\
# Ours.
model = "tiny"   # the small one

[generation]
seed = 1  # always

[plugins]
# in priority order
enabled = ["fill-echo"]  # more later

[plugins.spec-ngram]
k = 2
"""
WANTED: dict[tuple[str, ...], Any] = {
    ("draft",): None,
    ("plugins", "enabled"): ["spec-ngram", "model-tiny"],
}


def settled(text: str, settings: dict[tuple[str, ...], Any] | None = None) -> str:
    Path("mlxfill.toml").write_text(text, encoding="utf-8", newline="")
    change = settle(mlxfill.load_config(), WANTED if settings is None else settings)
    change.write()
    with Path("mlxfill.toml").open(encoding="utf-8", newline="") as file:
        return file.read()


def test_all_else_stays_to_the_letter() -> None:
    assert settled(FULL) == FULL.replace('["fill-echo"]', '["spec-ngram", "model-tiny"]')


def test_line_ends_and_mark_stay() -> None:
    text = "\ufeff" + FULL.replace("\n", "\r\n")
    assert settled(text) == text.replace('["fill-echo"]', '["spec-ngram", "model-tiny"]')
    more = settled(text, {**WANTED, ("draft",): "small"})
    assert more.count("\r\n") == more.count("\n") == text.count("\n") + 1


def test_the_short_list_stays_short() -> None:
    assert settled('plugins = ["x"]  # on\nmodel = "m"\n') == (
        'plugins = ["spec-ngram", "model-tiny"]  # on\nmodel = "m"\n'
    )


def test_entries_that_stay_keep_their_lines_and_comments() -> None:
    text = """plugins = [
  "fill-echo",   # copies
  "spec-ngram",  # looks up
]
"""
    wanted = {**WANTED, ("plugins", "enabled"): ["spec-ngram", "model-tiny"]}
    after = settled(text, wanted)
    assert '"spec-ngram",  # looks up' in after
    assert tomllib.loads(after) == {"plugins": ["spec-ngram", "model-tiny"]}


LINES = """plugins = [
  # what is sure
  "fill-strict",  # templates

  # what is likely
  "fill-echo" # copies
  , "spec-ngram",
]  # more later
"""
COMMENTED = LINES.replace(' # copies\n  , "spec', ', # copies\n  "spec')


REORDERED = """plugins = [

  # what is likely
  "fill-echo", # copies
  # what is sure
  "fill-strict",  # templates
  "spec-ngram",
]  # more later
"""
SHORTER = """plugins = [
  "spec-ngram",
  # what is sure

  # what is likely
  "fill-echo", # copies
]  # more later
"""
OTHERS = """plugins = [
  # what is sure
  "fill-strict",  # templates
  "other",

  # what is likely
  "fill-echo", # copies
]  # more later
"""
NONE = """plugins = [
  # what is sure

  # what is likely
]  # more later
"""


@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=repr)
@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["fill-echo", "fill-strict", "spec-ngram"], REORDERED),
        (["spec-ngram", "fill-echo"], SHORTER),
        (["fill-strict", "other", "fill-echo"], OTHERS),
        ([], NONE),
    ],
)
def test_entries_of_several_lines_take_their_comments_along(
    names: list[str], expected: str, end: str
) -> None:
    after = settled_text(COMMENTED.replace("\n", end), {("plugins", "enabled"): names})
    assert after == expected.replace("\n", end)


def test_a_last_entry_without_a_comma_takes_its_comment_along() -> None:
    after = settled('plugins = [\n  "model-tiny",\n  "spec-ngram"  # last\n]\n')
    assert after == 'plugins = [\n  "spec-ngram",  # last\n  "model-tiny",\n]\n'


def test_where_comments_cannot_stay_nothing_is_written_and_the_list_is_told() -> None:
    Path("mlxfill.toml").write_text(LINES)
    said = r'mlxfill.toml .* comments would be lost; let the list be \["spec-ngram", "model-tiny"\]'
    with pytest.raises(mlxfill.ConfigError, match=said):
        settle(mlxfill.load_config(), WANTED)
    assert Path("mlxfill.toml").read_text() == LINES
    same = {**WANTED, ("plugins", "enabled"): ["fill-strict", "fill-echo", "spec-ngram"]}
    assert settled(LINES, same) == LINES


def test_inline_tables_stay_inline() -> None:
    assert settled("plugins = { fill-echo = { k = 6 } }  # short\n") == (
        'plugins = { fill-echo = { k = 6 }, enabled = ["spec-ngram", "model-tiny"]}  # short\n'
    )


def test_a_table_is_added_where_there_is_none() -> None:
    text = 'model = "tiny"\n\n[generation]\nseed = 1\n'
    after = settled(text)
    assert after.startswith(text)
    assert tomllib.loads(after)["plugins"] == {"enabled": ["spec-ngram", "model-tiny"]}


def test_settings_of_plugins_stay_where_no_list_stood() -> None:
    text = "[plugins.spec-ngram]\nk = 2  # short\n"
    after = settled(text)
    assert "k = 2  # short" in after
    assert tomllib.loads(after)["plugins"] == {
        "enabled": ["spec-ngram", "model-tiny"],
        "spec-ngram": {"k": 2},
    }


def test_a_drafter_comes_and_goes() -> None:
    with_draft = {**WANTED, ("draft",): "small model"}
    after = settled(FULL, with_draft)
    assert tomllib.loads(after)["draft"] == "small model"
    assert after.index("draft") < after.index("[generation]")
    back = settled(after)
    assert "draft" not in tomllib.loads(back)
    assert tomllib.loads(back)["plugins"] == tomllib.loads(after)["plugins"]


def test_a_project_file_keeps_its_other_tables() -> None:
    text = '[project]\nname = "x"  # mine\n\n[tool.mlxfill]\nmodel = "tiny"\n\n[tool.ruff]\nx = 1\n'
    Path("pyproject.toml").write_text(text)
    settle(mlxfill.load_config(), WANTED).write()
    after = Path("pyproject.toml").read_text()
    assert tomllib.loads(after) == {
        "project": {"name": "x"},
        "tool": {
            "mlxfill": {"model": "tiny", "plugins": {"enabled": ["spec-ngram", "model-tiny"]}},
            "ruff": {"x": 1},
        },
    }
    assert '"x"  # mine' in after


def test_without_a_file_one_is_made() -> None:
    change = settle(mlxfill.load_config(), WANTED)
    assert change.before is None
    assert "+enabled = " in change.diff()
    assert not Path("mlxfill.toml").exists()
    change.write()
    assert mlxfill.load_config().plugins.enabled == ("spec-ngram", "model-tiny")


def test_mode_and_links_stay() -> None:
    real = Path("real.toml")
    real.write_text("model = 'tiny'\n")
    real.chmod(0o600)
    Path("mlxfill.toml").symlink_to(real)
    settle(mlxfill.load_config(), WANTED).write()
    assert Path("mlxfill.toml").is_symlink()
    assert stat.S_IMODE(real.stat().st_mode) == 0o600
    assert "spec-ngram" in real.read_text()
    assert sorted(path.name for path in Path().iterdir()) == ["mlxfill.toml", "real.toml"]


def test_a_full_disk_leaves_the_file_as_it_was_and_no_other() -> None:
    Path("mlxfill.toml").write_text("model = 'tiny'\n")
    change = settle(mlxfill.load_config(), WANTED)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8, before[1]))
    try:
        with pytest.raises(mlxfill.ConfigError, match=r"mlxfill.toml cannot be written: "):
            change.write()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [path.name for path in Path().iterdir()] == ["mlxfill.toml"]
    assert Path("mlxfill.toml").read_text() == "model = 'tiny'\n"


def test_a_file_that_was_changed_meanwhile_is_left_alone() -> None:
    Path("mlxfill.toml").write_text("model = 'tiny'\n")
    change = settle(mlxfill.load_config(), WANTED)
    Path("mlxfill.toml").write_text("model = 'other'\n")
    with pytest.raises(mlxfill.ConfigError, match="changed meanwhile"):
        change.write()
    assert Path("mlxfill.toml").read_text() == "model = 'other'\n"


def test_a_variable_that_would_override_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLXFILL_PLUGINS", "fill-echo")
    with pytest.raises(mlxfill.ConfigError, match=r"\$MLXFILL_PLUGINS overrides plugins.enabled"):
        settle(mlxfill.load_config(), WANTED)


comments = st.text(st.characters(max_codepoint=1000, exclude_categories=["Cc"]), max_size=12)
keys = st.sampled_from(["model", "draft", "num_draft_tokens", "generation.seed", "trust.assert"])
TEXT = '"x"'
VALUES = {"num_draft_tokens": "3", "generation.seed": "7", "trust.assert": '["a"]'}


@given(
    chosen=st.lists(keys, unique=True),
    notes=st.lists(comments, min_size=5, max_size=5),
    names=st.lists(st.sampled_from(["a", "b", "c-d"]), unique=True),
    draft=st.none() | st.text(min_size=1, max_size=8),
)
def test_any_config_keeps_its_other_values_and_comments(
    chosen: list[str], notes: list[str], names: list[str], draft: str | None
) -> None:
    plain = [key for key in chosen if "." not in key]
    lines = [
        f"{key} = {VALUES.get(key, TEXT)} # {note}"
        for key, note in zip([*plain, *(k for k in chosen if "." in k)], notes, strict=False)
    ]
    text = "\n".join(lines)
    before = tomllib.loads(text)
    after = settled_text(text, {("draft",): draft, ("plugins", "enabled"): names})
    read = tomllib.loads(after)
    assert read.pop("plugins") == {"enabled": names}
    assert read.pop("draft", None) == draft
    before.pop("draft", None)
    assert read == before
    for line in lines:
        if not line.startswith("draft"):
            assert line.rstrip() in after
