"""``mlxfill demo`` with what the repository brings: the tiny model and its plugins."""

from __future__ import annotations

import os
import re
from pathlib import Path
from xml.etree import ElementTree as ET

import mlx.core as mx
import pytest

from mlxfill.cli import main
from mlxfill_model_tiny.demo import race
from mlxfill_model_tiny.demo.asks import demo_asks

ROOT = Path(__file__).parents[1]
ROW = re.compile(
    r"^(?P<ask>[a-z ]+?) +(?P<tokens>\d+) +(?P<plain>\d+) → (?P<fast>\d+) +(?P<each>[\d.]+)"
    r" +(?P<plain_ms>[\d.]+) → (?P<fast_ms>[\d.]+) +x(?P<speed>[\d.]+) +yes *$",
    re.MULTILINE,
)


def words_of(picture: Path) -> list[str]:
    """What one reads in an SVG."""
    texts = ET.fromstring(picture.read_text("utf-8")).iterfind(".//{*}text")  # noqa: S314
    return [text.text or "" for text in texts]


@pytest.fixture(autouse=True)
def quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Few timed rounds, no config but that of the test, and exact arithmetic."""
    for variable in os.environ:
        if variable.startswith("MLXFILL_"):
            monkeypatch.delenv(variable)
    for variable in ("HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(variable, str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(race, "ROUNDS", 2)
    monkeypatch.setattr(race, "MOST_ROUNDS", 2)
    mx.set_default_device(mx.cpu)
    return tmp_path


def test_fewer_forwards_and_the_same_text(
    quick: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (999.0, 0.0, 0.0))
    (quick / "mlxfill.toml").write_text(
        "plugins = ['fill-strict', 'fill-echo', 'spec-ngram']\ndraft = 'none'\n"
        "[generation]\ntemperature = 1.0\n"
    )
    assert main(["demo", "--svg", "run.svg"]) == 0
    page = capsys.readouterr().out
    rows = [match.groupdict() for match in ROW.finditer(page)]
    assert [row["ask"] for row in rows] == [ask.title for ask in demo_asks()]
    for row in rows:
        assert int(row["tokens"]) > 10
        assert int(row["fast"]) < int(row["plain"])
        assert float(row["each"]) > 1
        quotient = float(row["plain_ms"]) / float(row["fast_ms"])
        assert float(row["speed"]) == pytest.approx(quotient, abs=0.02)
    assert max(float(row["each"]) for row in rows) > 2
    assert "(load 999.0 on " in page
    assert "with these plugins they are the same on every machine" in " ".join(page.split())
    assert page.endswith("identical: yes\n")

    drawn, shown = Path("run.svg"), ROOT / "docs" / "images" / "run.svg"
    assert words_of(drawn) == words_of(shown), "mlxfill demo --svg, with these plugins, renews it"
    assert "http" not in drawn.read_text("utf-8").replace("http://www.w3.org/2000/svg", "")


@pytest.mark.parametrize("file", ["-", "none/run.svg", "."])
def test_a_picture_that_cannot_be_saved_is_told_before_the_run(
    capsys: pytest.CaptureFixture[str], file: str
) -> None:
    assert main(["demo", "--svg", file]) == 2
    out, err = capsys.readouterr()
    assert (out, err.startswith(f"error: --svg {file}: ")) == ("", True)


@pytest.fixture
def one_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    """A demo of the first ask only."""
    first = demo_asks()[:1]
    monkeypatch.setattr("mlxfill_model_tiny.demo.asks.demo_asks", lambda: first)


@pytest.mark.usefixtures("one_ask")
def test_without_a_source_it_says_what_to_install(
    quick: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (quick / "mlxfill.toml").write_text("plugins = []\n")
    assert main(["demo"]) == 0
    page = capsys.readouterr().out
    assert "No plugin that proposes tokens is on" in page
    assert page.endswith("identical: yes\n")


@pytest.mark.usefixtures("one_ask")
def test_a_missing_plugin_and_a_wrong_place_are_one_line(
    quick: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (quick / "mlxfill.toml").write_text("plugins = ['zz-none']\n")
    assert main(["demo"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "plugin 'zz-none' is not installed" in line
    (quick / "mlxfill.toml").write_text("plugins = ['spec-ngram']\n")
    assert main(["demo", "--svg", "none/run.svg"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line == "error: --svg none/run.svg: there is no folder none"
