"""Every distribution has the same shape, and its wheel is complete and stands alone."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
CORE = ROOT / "core"
PLUGINS = sorted(project.parent for project in ROOT.glob("plugins/*/pyproject.toml"))
MEMBERS = [CORE, *PLUGINS]
MAX_WHEEL_BYTES = 8_000_000
HEAVY = {"mlx", "mlx_lm", "transformers", "numpy", "typer", "rich"}

each_plugin = pytest.mark.parametrize("folder", PLUGINS, ids=lambda folder: folder.name)
each_member = pytest.mark.parametrize("folder", MEMBERS, ids=lambda folder: folder.name)


def settings(folder: Path) -> dict[str, Any]:
    return tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))


def package(folder: Path) -> str:
    return "mlxfill" if folder == CORE else f"mlxfill_{folder.name}"


def plugin_name(folder: Path) -> str:
    return folder.name.replace("_", "-")


def imported(source: Path) -> set[str]:
    """Full names of the modules that a source file imports anywhere in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module)
    return names


def python(*arguments: str, cwd: Path, path: Path | None = None) -> str:
    """Run this interpreter, with ``path`` before everything installed."""
    start = "import sys\n" + (f"sys.path.insert(0, {str(path)!r})\n" if path else "")
    code, *rest = arguments
    done = subprocess.run(
        [sys.executable, "-c", start + code, *rest],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# --- pyproject.toml --------------------------------------------------------------


def test_there_are_plugins() -> None:
    assert PLUGINS


@each_plugin
def test_a_plugin_is_named_after_its_folder(folder: Path) -> None:
    project = settings(folder)["project"]
    assert project["name"] == f"mlxfill-{plugin_name(folder)}"
    points = project["entry-points"]
    assert points["mlxfill"] == {plugin_name(folder): f"{package(folder)}.plugin"}
    ours = {name: group for name, group in points.items() if name.startswith("mlxfill")}
    assert ours.keys() <= {"mlxfill", "mlxfill.commands", "mlxfill.models", "mlxfill.chat"}
    assert points.keys() - ours.keys() <= {"pytest11"}
    modules = {point.partition(":")[0] for group in ours.values() for point in group.values()}
    assert modules == {f"{package(folder)}.plugin"}


@each_plugin
def test_a_plugin_accepts_one_minor_version_of_the_core(folder: Path) -> None:
    major, minor, _ = settings(CORE)["project"]["version"].split(".")
    wanted = f"mlxfill>={major}.{minor},<{major}.{int(minor) + 1}"
    assert wanted in settings(folder)["project"]["dependencies"]


@each_member
def test_members_share_what_is_not_their_own(folder: Path) -> None:
    mine, core = settings(folder), settings(CORE)
    assert mine["build-system"] == core["build-system"]
    for key in ("readme", "license", "license-files", "authors", "requires-python", "classifiers"):
        assert mine["project"][key] == core["project"][key]
    assert mine["tool"]["hatch"]["build"]["targets"]["wheel"] == {
        "packages": [f"src/{package(folder)}"]
    }
    assert set(mine["tool"]) == {"hatch"}, "tools are configured in the root"


@each_member
def test_members_have_the_same_files(folder: Path) -> None:
    project = settings(folder)["project"]
    title = (folder / "README.md").read_text(encoding="utf-8").splitlines()[0]
    changes = (folder / "CHANGELOG.md").read_text(encoding="utf-8")
    assert title == f"# {project['name']}"
    assert changes.startswith(f"# Changelog of {project['name']}\n")
    assert f"\n## {project['version']}" in changes
    assert (folder / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    assert (folder / "src" / package(folder) / "py.typed").is_file()
    assert list(folder.glob("tests/**/test_*.py"))


def test_the_root_knows_every_member() -> None:
    root = settings(ROOT)
    names = {settings(folder)["project"]["name"] for folder in MEMBERS}
    packages = {package(folder) for folder in MEMBERS}
    extra = dict(entry.split(" @ ") for entry in root["project"]["optional-dependencies"]["all"])
    assert extra == {
        settings(folder)["project"]["name"]: f"{{root:uri}}/{folder.relative_to(ROOT).as_posix()}"
        for folder in MEMBERS
    }
    tool = root["tool"]
    assert names <= set(root["dependency-groups"]["dev"])
    assert names <= set(tool["uv"]["sources"])
    assert set(tool["importlinter"]["root_packages"]) == packages
    assert set(tool["ruff"]["lint"]["isort"]["known-first-party"]) == packages
    sources = {(folder / "src").relative_to(ROOT).as_posix() for folder in MEMBERS}
    assert sources <= set(tool["mypy"]["mypy_path"])


def brought() -> dict[str, list[str]]:
    """What the extras of the core bring of this project."""
    extras = settings(CORE)["project"]["optional-dependencies"]
    return {extra: names for extra, names in extras.items() if names[0].startswith("mlxfill-")}


@each_plugin
def test_the_metadata_of_the_core_say_what_brings_a_command_or_a_model(folder: Path) -> None:
    project = settings(folder)["project"]
    points = project["entry-points"]
    words = [command.replace(" ", "-") for command in points.get("mlxfill.commands", {})]
    words += [f"model-{model}" for model in points.get("mlxfill.models", {})]
    words += [f"chat-{option}" for option in points.get("mlxfill.chat", {})]
    known = brought()
    assert {word: known[word] for word in words} == {word: [project["name"]] for word in words}
    assert any(project["name"] in names for names in known.values())


def test_the_code_of_the_core_names_no_plugin() -> None:
    """Commands and models have names of their own: what a plugin is called stands nowhere."""
    words = {"bench", "constrain", "serve", "testing"}  # of the language, too
    names = {plugin_name(folder) for folder in PLUGINS}
    spelt = [rf"\b{name.replace('-', '[-_]')}\b" for name in names - words]
    spelt += [rf"\bmlxfill[-_]{name}\b|plugins/{name}\b|['\"`]{name}['\"`]" for name in words]
    pattern = re.compile("|".join(spelt))
    found = {
        f"{source.relative_to(ROOT)}: {match.group()}"
        for source in (CORE / "src").rglob("*.py")
        for match in pattern.finditer(source.read_text("utf-8"))
    }
    assert found == set()


# --- imports ---------------------------------------------------------------------


def test_the_core_imports_no_plugin() -> None:
    for source in (CORE / "src").rglob("*.py"):
        plugins = {name for name in imported(source) if name.startswith("mlxfill_")}
        assert not plugins, source


@each_plugin
def test_a_plugin_imports_only_public_modules_of_the_core(folder: Path) -> None:
    for source in (folder / "src").rglob("*.py"):
        ours = {name for name in imported(source) if name.split(".")[0].startswith("mlxfill")}
        foreign = {name for name in ours if name.split(".")[0] != package(folder)}
        assert foreign <= {"mlxfill", "mlxfill.tool_calls"}, source


def test_importing_mlxfill_stays_light(tmp_path: Path) -> None:
    code = "import mlxfill; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    loaded = set(python(code, cwd=tmp_path).split())
    assert "mlxfill" in loaded
    assert not HEAVY & loaded


# --- wheels ----------------------------------------------------------------------


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Path]:
    """Wheel of each member, built from its folder with the installed hatchling."""
    out = tmp_path_factory.mktemp("wheels")
    built = {}
    for folder in MEMBERS:
        code = "from hatchling.build import build_wheel; print(build_wheel(sys.argv[1]))"
        name = python(code, str(out), cwd=folder).split()[-1]
        built[folder] = out / name
    return built


@each_member
def test_a_wheel_holds_the_whole_package(folder: Path, wheels: dict[Path, Path]) -> None:
    source = folder / "src"
    wanted = {
        path.relative_to(source).as_posix()
        for path in source.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    held = set(zipfile.ZipFile(wheels[folder]).namelist())
    assert f"{package(folder)}/py.typed" in wanted
    assert {name for name in held if ".dist-info/" not in name} == wanted
    assert any(name.endswith("/licenses/LICENSE") for name in held)
    assert wheels[folder].stat().st_size < MAX_WHEEL_BYTES


@each_plugin
def test_a_plugin_wheel_works_without_the_other_plugins(
    folder: Path, wheels: dict[Path, Path], tmp_path: Path
) -> None:
    for wheel in (wheels[CORE], wheels[folder]):
        zipfile.ZipFile(wheel).extractall(tmp_path)
    code = """
from importlib.metadata import distributions

(point,) = [
    point
    for distribution in distributions(path=[sys.path[0]])
    for point in distribution.entry_points.select(group="mlxfill")
]
module = point.load()
print(module.__file__)
print(*{name.split(".")[0] for name in sys.modules})
"""
    file, names = python(code, cwd=tmp_path, path=tmp_path).splitlines()
    loaded = set(names.split())
    assert Path(file).is_relative_to(tmp_path)
    assert {name for name in loaded if name.startswith("mlxfill")} == {"mlxfill", package(folder)}
    assert not HEAVY & loaded, "plugins are imported at every start of the command line"


def test_the_page_says_what_each_dependency_of_the_core_is_for() -> None:
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    table = page.partition("| package | for |")[2].partition("\n\n")[0]
    named = {name for row in table.splitlines() for name in re.findall("`([a-z0-9-]+)`", row[:25])}
    asked = {re.split("[<>=]", each)[0] for each in settings(CORE)["project"]["dependencies"]}
    assert named == asked
