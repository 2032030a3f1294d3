"""``mlxfill launch``: agents get a server, and its address in the form that they know."""

from __future__ import annotations

import json
import os
import shlex
import sys
from typing import TYPE_CHECKING, Any

import pytest

from mlxfill.cli import main
from mlxfill_serve.agents import AGENTS

if TYPE_CHECKING:
    from pathlib import Path

NOWHERE = "http://127.0.0.1:9"


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where an agent on the path writes how it was started and what its server says."""
    folder, told = tmp_path / "bin", tmp_path / "told.json"
    folder.mkdir()
    program = folder / "claude"
    program.write_text(
        f"#!{sys.executable}\n"
        "import json, os, sys, urllib.request\n"
        "url = os.environ['ANTHROPIC_BASE_URL']\n"
        "health = json.load(urllib.request.urlopen(url + '/health'))\n"
        f"json.dump([url, sys.argv[1:], health], open({str(told)!r}, 'w'))\n"
        "sys.exit(3)\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    return told


@pytest.mark.parametrize("name", AGENTS)
def test_what_a_shell_needs_is_printed(
    name: str, served: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["launch", name, "--url", served.url, "--print"]) == 0
    *exports, command = capsys.readouterr().out.splitlines()
    everything = "\n".join([*exports, command])
    assert served.url in everything
    assert not any(word in everything for word in ("{url}", "{key}", "{model}"))
    words = shlex.split(command)
    assert words[0] == AGENTS[name].program
    for line in exports:
        export, pair = shlex.split(line)
        assert export == "export"
        variable, _, value = pair.partition("=")
        assert variable in AGENTS[name].variables
        assert value
    if name == "opencode":
        (config,) = (shlex.split(line)[1].partition("=")[2] for line in exports)
        assert json.loads(config)["model"] == "mlxfill/tiny"


def test_an_agent_talks_to_the_server_that_is_there(served: Any, told: Path) -> None:
    assert main(["launch", "claude", "--url", served.url, "--", "-p", "Hello."]) == 3
    url, arguments, health = json.loads(told.read_text())
    assert (url, arguments, health["model"]) == (served.url, ["-p", "Hello."], "tiny")


def test_a_server_is_begun_where_none_is_and_ends_with_the_agent(told: Path) -> None:
    assert main(["launch", "claude", "--url", NOWHERE, "--model", "tiny"]) == 3
    url, arguments, health = json.loads(told.read_text())
    assert (arguments, health["status"]) == ([], "ok")
    assert url != NOWHERE


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("nobody",), "no agent 'nobody' is known; there are: aider, claude, "),
        (("goose",), "goose is not installed: brew install block-goose-cli"),
        (("claude", "--model", "/no/such"), "the server did not start: "),
        (("claude", "--url", "127.0.0.1"), "no URL of a server"),
    ],
)
def test_what_cannot_be_is_one_line(
    arguments: tuple[str, ...],
    line: str,
    told: Path,  # noqa: ARG001
    capsys: pytest.CaptureFixture[str],
) -> None:
    near = () if "--url" in arguments else ("--url", NOWHERE)
    assert main(["launch", *arguments, *near]) == 2
    said = capsys.readouterr().err.strip()
    assert said.startswith("error: ")
    assert line in said
    assert "\n" not in said


def test_a_server_with_another_model_is_not_used(
    served: Any,
    told: Path,  # noqa: ARG001
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["launch", "claude", "--url", served.url, "--model", "other"]) == 2
    assert "serves 'tiny', not 'other'" in capsys.readouterr().err
