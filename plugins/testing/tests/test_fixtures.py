"""The pytest plugin: found by its entry point, and what its fixtures make."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

TESTS = """
from mlxfill import hookimpl
from mlxfill_testing import CACHE_KINDS, Guest
import pytest

PROMPT = [5, 9, 5, 9, 5]
seen = []


def test_every_kind(tiny_engine):
    seen.append(tiny_engine.kind.name)
    plain = tiny_engine.plain(PROMPT)
    engine = tiny_engine(Guest.offering([*PROMPT, *plain.tokens], 0.5))
    result = engine.generate(PROMPT, **tiny_engine.options)
    assert len(plain.tokens) == 20
    assert tiny_engine.kind.exact is False or result.tokens == plain.tokens


def test_all_were_seen():
    assert seen == list(CACHE_KINDS)


@pytest.mark.parametrize("tiny_engine", ["hybrid"], indirect=True)
def test_one_kind(tiny_engine):
    assert tiny_engine.kind.name == "hybrid"


@pytest.mark.parametrize("tiny_engine", ["trimmable"], indirect=True)
def test_drafters(tiny_engine, right_drafter, wrong_drafter, sometimes_right_drafter):
    plain = tiny_engine.plain(PROMPT).tokens
    accepted = []
    for make in (wrong_drafter, sometimes_right_drafter, right_drafter):
        result = tiny_engine(make([*PROMPT, *plain])).generate(PROMPT, **tiny_engine.options)
        assert result.tokens == plain
        accepted.append(result.stats.spec["accepted"])
    assert accepted[0] == 0 < accepted[1] < accepted[2]


class Ours:
    @hookimpl
    def mlxfill_resolve_model(self, name):
        return f"/models/{name}"


def test_a_host_of_its_own(plugin_host):
    host = plugin_host({"ours": Ours()})
    assert host.names == ("ours",)
    assert str(host.resolve_model("m")) == "/models/m"
"""


def run(folder: Path, *options: str) -> str:
    (folder / "test_mine.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False).stdout


def test_pytest_finds_the_fixtures_by_itself(tmp_path: Path) -> None:
    assert "9 passed" in run(tmp_path)


def test_they_can_be_left_out(tmp_path: Path) -> None:
    assert "fixture 'tiny_engine' not found" in run(tmp_path, "-p", "no:mlxfill")


def test_pytest_starts_without_importing_a_model_library(tmp_path: Path) -> None:
    (tmp_path / "test_light.py").write_text(
        "import sys\n"
        "def test_light():\n"
        "    assert 'mlxfill_testing.fixtures' in sys.modules\n"
        "    assert not {'mlx', 'mlx_lm', 'transformers'} & sys.modules.keys()\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "1 passed" in done.stdout
