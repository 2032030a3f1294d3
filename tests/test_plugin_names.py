"""The plugins of this project among each other: their order, and slips in their names."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from mlxfill import PluginError, load
from mlxfill.cli import main
from mlxfill.config import load_config
from mlxfill.plugins import PluginManager
from mlxfill.plugins.advice import project_plugins
from mlxfill_testing.installed import FakeSite


def test_without_a_list_fixed_text_comes_before_echoes_and_echoes_before_lookups() -> None:
    names = PluginManager.load(load_config({})).names
    order = [names.index(name) for name in ("fill-strict", "fill-echo", "spec-ngram")]
    assert order == sorted(order)
    assert names.index("constrain") < names.index("fill-echo")


def test_the_plugins_that_may_be_advised_are_those_of_this_project() -> None:
    folders = Path(__file__).parents[1].glob("plugins/*/pyproject.toml")
    names = [tomllib.loads(file.read_text("utf-8"))["project"]["name"] for file in folders]
    assert sorted(f"mlxfill-{name}" for name in project_plugins()) == sorted(names)


def test_the_last_words_of_a_plugins_name_will_do(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["generate", "--model", "tiny", "-m", "1", "--json", "--plugins", "echo,ngram", "Hi"]
    assert main(asked) == 0
    assert json.loads(capsys.readouterr().out)["faults"] == []


COMMANDS = (
    ["generate", "--model", "tiny", "-m", "1", "--json", "Hi", "--plugins"],
    ["chat", "--model", "tiny", "--plugins"],
    ["audit", "--model", "tiny", "-m", "1", "Hi", "--plugins"],
    ["serve", "--model", "tiny", "--port", "0", "--plugins"],
    ["bench", "--model", "tiny", "--arms"],
    ["tune", "--model", "tiny", "--arms"],
    ["bench", "replay", "--model", "tiny", "--arms"],
)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_last_words_that_several_plugins_share_are_refused(
    command: list[str],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    site = FakeSite(tmp_path)
    site.add("other-ngram", "MLXFILL_API = 2")
    assert main([*command, "ngram"]) == 2
    said = "plugin 'ngram' may be other-ngram or spec-ngram: give one of these names"
    assert capsys.readouterr().err == f"error: {said}\n"
    site.forget()


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_last_words_will_do_for_every_command(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, "echo,no-such"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: plugin 'no-such' is not installed; ")


def test_info_takes_the_last_words_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plugins", "info", "ngram", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["name"] == "spec-ngram"


@pytest.mark.parametrize("slip", ["spec-ngrm", "ngrm", "mlxfill-spec-ngram"])
def test_a_slip_gets_the_name_that_was_meant(slip: str, capsys: pytest.CaptureFixture[str]) -> None:
    said = f"plugin {slip!r} is not installed; did you mean 'spec-ngram'?"
    with pytest.raises(PluginError) as caught:
        load("tiny", plugins=[slip], config={})
    assert str(caught.value) == said
    assert main(["generate", "--model", "tiny", "--plugins", slip, "Hi"]) == 2
    assert capsys.readouterr().err == f"error: {said}\n"


def test_bench_names_what_an_arm_was_meant_to_be(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--model", "tiny", "--arms", "ngrm"]) == 2
    assert "did you mean 'spec-ngram'?" in capsys.readouterr().err
