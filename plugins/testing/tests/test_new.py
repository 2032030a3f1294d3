"""``mlxfill plugins new``: what it writes, and what it refuses to write."""

from __future__ import annotations

import ast
import tomllib
from typing import TYPE_CHECKING

import pytest

from full_disk import full_after
from mlxfill.cli import main

if TYPE_CHECKING:
    from pathlib import Path

    from mlxfill_testing.installed import FakeSite

MOST_LINES = {"source": 60, "drafter": 90}


def code_lines(source: str) -> int:
    """Lines of a module that hold code: not blank, no comment, no docstring."""
    tree, taken = ast.parse(source), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            taken |= set(range(node.lineno, (node.end_lineno or 0) + 1))
    lines = enumerate(source.splitlines(), 1)
    return sum(bool(line.split("#")[0].strip()) and at not in taken for at, line in lines)


def test_another_kind_is_refused(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plugins", "new", "demo-it", "--kind", "rewinder"]) == 2
    said = "error: Invalid value for '--kind': 'rewinder' is not one of 'source', 'drafter'."
    assert capsys.readouterr().err.startswith(said)
    assert not list(workplace.iterdir())


@pytest.mark.parametrize("kind", ["source", "drafter"])
def test_a_new_plugin_is_a_small_whole_distribution(workplace: Path, kind: str) -> None:
    assert main(["plugins", "new", "demo-it", "--kind", kind]) == 0
    folder = workplace / "mlxfill-demo-it"
    project = tomllib.loads((folder / "pyproject.toml").read_text())
    assert project["project"]["name"] == "mlxfill-demo-it"
    assert project["project"]["entry-points"]["mlxfill"] == {"demo-it": "mlxfill_demo_it.plugin"}
    package = folder / "src" / "mlxfill_demo_it"
    assert {path.name for path in package.iterdir()} == {"__init__.py", "plugin.py", "py.typed"}
    assert (folder / "README.md").read_text().startswith("# mlxfill-demo-it\n")
    modules = [*package.glob("*.py"), *folder.glob("tests/*.py")]
    texts = [path.read_text() for path in modules]
    assert sum(map(code_lines, texts)) < MOST_LINES[kind]
    assert not [path for path in folder.rglob("*") if "{" in path.name or path.suffix == ".j2"]
    assert "{{" not in "".join(texts)


@pytest.mark.parametrize("kind", ["source", "drafter"])
def test_what_says_that_it_is_typed_is_typed(workplace: Path, kind: str) -> None:
    assert main(["plugins", "new", "demo", "--kind", kind]) == 0
    folder = workplace / "mlxfill-demo"
    assert [path.name for path in folder.rglob("py.typed")] == ["py.typed"]
    functions = [
        node
        for path in folder.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef)
    ]
    assert len(functions) > 6
    for function in functions:
        assert function.returns is not None, function.name
        given = [each for each in function.args.args if each.arg != "self"]
        assert all(each.annotation for each in given), function.name


def test_it_says_what_to_do_next(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plugins", "new", "demo"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[-1] == "next: pip install -e './mlxfill-demo[test]' && pytest mlxfill-demo"
    extras = tomllib.loads((workplace / "mlxfill-demo" / "pyproject.toml").read_text())["project"]
    assert extras["optional-dependencies"] == {"test": ["mlxfill-testing"]}
    assert (workplace / "mlxfill-demo").is_dir()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Demo", "'Demo' is no name for a plugin: at most 40 lower-case letters"),
        ("demo_it", "'demo_it' is no name"),
        ("-demo", "No such option"),
        ("demo--it", "'demo--it' is no name"),
        ("3demo", "'3demo' is no name"),
        ("../demo", "'../demo' is no name"),
        ("demö", "'demö' is no name"),
        ("", "'' is no name"),
        ("a" * 41, "is no name"),
        ("mlxfill-demo", "leaves out 'mlxfill-': use 'demo'"),
        ("demo\n", "is no name"),
    ],
)
def test_a_bad_name_is_one_line(
    workplace: Path, capsys: pytest.CaptureFixture[str], name: str, said: str
) -> None:
    assert main(["plugins", "new", name]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
    assert list(workplace.iterdir()) == []


def test_the_name_of_an_installed_plugin_is_taken(
    workplace: Path, site: FakeSite, capsys: pytest.CaptureFixture[str]
) -> None:
    site.add("taken", version="1.5")
    assert main(["plugins", "new", "taken"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "'taken' is installed already (see mlxfill plugins info taken)" in line
    assert not (workplace / "mlxfill-taken").exists()


def test_a_folder_that_is_there_is_left_alone(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (workplace / "mlxfill-demo").mkdir()
    assert main(["plugins", "new", "demo"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "mlxfill-demo is there already" in line
    assert list((workplace / "mlxfill-demo").iterdir()) == []


def test_a_place_that_cannot_be_written_is_one_line(
    capsys: pytest.CaptureFixture[str], workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = workplace / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert main(["plugins", "new", "demo"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "mlxfill-demo cannot be made: No such file or directory" in line


def test_a_full_disk_is_one_line(
    capsys: pytest.CaptureFixture[str],
    workplace: Path,  # noqa: ARG001 - the working folder
) -> None:
    with full_after(0):
        assert main(["plugins", "new", "demo"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: mlxfill-demo/")
    assert line.endswith(" cannot be written: File too large")
