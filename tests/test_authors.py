"""The way of an author of plugins: begin one, install it, test it, use it.

What they install goes into a new virtual environment that sees the packages of this one, so that
nothing is downloaded; their builds and installs are pip's own.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
THIRD_PARTY = sorted(
    project.parent for project in ROOT.glob("examples/third_party/*/pyproject.toml")
)


class Home:
    """A new environment and a folder to work in."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "work"
        self.folder.mkdir()
        self.bin = folder / "venv" / "bin"
        run([sys.executable, "-m", "venv", "--without-pip", str(self.bin.parent)], folder)
        (packages,) = self.bin.parent.glob("lib/python*/site-packages")
        seen = sysconfig.get_paths()["purelib"]
        # With `addsitedir` editable installs of this environment are seen too.
        (packages / "outer.pth").write_text(f"import site; site.addsitedir({seen!r})\n")
        self.packages = packages

    def python(self, *arguments: str) -> str:
        """Run the new interpreter."""
        return run([str(self.bin / "python"), *arguments], self.folder)

    def mlxfill(self, *arguments: str) -> str:
        """Run ``mlxfill`` there."""
        return self.python("-m", "mlxfill", *arguments)

    def install(self, folder: Path) -> None:
        """``pip install FOLDER``, of what is in the folder alone."""
        options = ["--no-deps", "--no-build-isolation", "--no-index", "--quiet"]
        self.python("-m", "pip", "install", *options, "--disable-pip-version-check", str(folder))


def run(command: list[str], folder: Path) -> str:
    kept = {name: v for name, v in os.environ.items() if not name.startswith(("MLXFILL_", "XDG_"))}
    done = subprocess.run(
        command,
        cwd=folder,
        env={**kept, "HOME": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    return Home(tmp_path_factory.mktemp("author"))


@pytest.mark.parametrize("folder", THIRD_PARTY, ids=lambda folder: folder.name)
def test_a_plugin_from_outside_installs_by_its_path_and_passes_its_tests(
    home: Home, folder: Path
) -> None:
    home.install(folder)
    name = folder.name.replace("_", "-")
    told = json.loads(home.mlxfill("plugins", "info", name, "--json"))
    assert (told["state"], told["distribution"]) == ("on", f"mlxfill-{name}")
    assert (home.packages / f"mlxfill_{folder.name}" / "plugin.py").is_file()
    said = home.python("-m", "pytest", "-q", "-p", "no:cacheprovider", str(folder))
    assert " passed" in said
    assert "failed" not in said


def test_there_is_one_from_outside() -> None:
    assert THIRD_PARTY


USED = """
import mlxfill

ask = [{"role": "user", "content": "List the days of the week."}]
with mlxfill.load("tiny", plugins=[], config={}) as engine:
    plain = engine.generate(ask, max_tokens=60)
for plugin, kind in (("demo-source", None), ("demo-drafter", "demo-drafter")):
    always = {"gate": {"enabled": False}}
    with mlxfill.load("tiny", plugins=[plugin], draft_kind=kind, config=always) as engine:
        result = engine.generate(ask, max_tokens=60)
    assert result.tokens == plain.tokens
    assert result.faults == []
    print(plugin, result.stats.spec["drafted"])
"""


def judged_as_its_readme_says(home: Home, name: str) -> dict[str, int]:
    """Ids by origin that are verified when all that is offered is tried."""
    readme = (home.folder / f"mlxfill-{name}" / "README.md").read_text("utf-8")
    (arguments,) = re.findall(r"^\$ mlxfill (generate .+)$", readme, re.MULTILINE)
    (always,) = re.findall(r"`(MLXFILL_\w+=\w+)`", readme)
    program = ["env", always, str(home.bin / "python"), "-m", "mlxfill"]
    said = run([*program, *shlex.split(arguments), "--json"], home.folder)
    judged: dict[str, int] = json.loads(said)["stats"]["spec"]["drafted_from"]
    return judged


def test_new_plugins_install_pass_their_tests_and_propose(home: Home) -> None:
    for kind in ("source", "drafter"):
        name = f"demo-{kind}"
        home.mlxfill("plugins", "new", name, "--kind", kind)
        home.install(home.folder / f"mlxfill-{name}")
        assert (home.packages / f"mlxfill_demo_{kind}" / "plugin.py").is_file()
        assert "2 passed" in home.python("-m", "pytest", "-q", f"mlxfill-{name}")
        assert set(judged_as_its_readme_says(home, name)) == {name}
    for line in home.python("-c", USED).splitlines():
        plugin, drafted = line.split()
        assert int(drafted) > 0, plugin
