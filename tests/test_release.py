"""What a tag releases: sdist and wheel that twine accepts, or one line that says why not."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
CORE = ROOT / "core"
MEMBERS = [CORE, *sorted(p.parent for p in ROOT.glob("plugins/*/pyproject.toml"))]
SCRIPT = ROOT / "tools" / "release.py"
WORKFLOW = ROOT / ".github" / "workflows" / "release.yml"


def project(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]
    return found


def release(*arguments: str | Path, script: Path = SCRIPT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, script, *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("folder", MEMBERS, ids=lambda folder: folder.name)
def test_every_distribution_can_be_released(folder: Path, tmp_path: Path) -> None:
    name, version = project(folder)["name"], project(folder)["version"]
    there = "https://example.org/team/mlxfill"
    done = release(f"{name}-v{version}", "--draft", "--out", tmp_path, "--url", there)
    assert done.returncode == 0, done.stderr
    files = sorted(path.name for path in (tmp_path / f"{name}-{version}").iterdir())
    stem = f"{name.replace('-', '_')}-{version}"
    assert files == [f"{stem}-py3-none-any.whl", f"{stem}.tar.gz"]
    with tarfile.open(tmp_path / f"{name}-{version}" / f"{stem}.tar.gz") as sdist:
        held = {path.removeprefix(f"{stem}/") for path in sdist.getnames()}
    (wheel,) = (tmp_path / f"{name}-{version}").glob("*.whl")
    with zipfile.ZipFile(wheel) as unpacked:
        told = unpacked.read(f"{stem}.dist-info/METADATA").decode()
    links = dict(re.findall(r"^Project-URL: (\w+), (\S+)$", told, re.MULTILINE))
    assert links["Repository"] == there
    assert links["Changelog"].startswith(there)
    assert links["Changelog"].endswith("/CHANGELOG.md")
    assert {"Documentation", "Issues"} <= links.keys()
    assert {"PKG-INFO", "README.md", "CHANGELOG.md", "LICENSE", "pyproject.toml"} <= held
    assert any(path.startswith("tests/test_") for path in held)


@pytest.mark.parametrize(
    ("tag", "reason"),
    [
        ("v0.1.0", "is not NAME-vX.Y.Z"),
        ("mlxfill-v99.0.0", "the tag says 99.0.0"),
        ("mlxfill-nothing-v0.1.0", "there is no distribution 'mlxfill-nothing'"),
    ],
)
def test_a_wrong_tag_is_refused_in_one_line(tag: str, reason: str, tmp_path: Path) -> None:
    done = release(tag, "--out", tmp_path)
    assert done.returncode == 2
    assert reason in done.stderr
    assert done.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("heading", ["## 1.2.3 (unreleased)", "## 1.2.3", "## 1.2.3 (soon)"])
def test_a_version_is_released_once_its_changelog_has_a_date(heading: str, tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / "core").mkdir()
    script = Path(shutil.copy(SCRIPT, tmp_path / "tools"))
    (tmp_path / "core" / "pyproject.toml").write_text('[project]\nversion = "1.2.3"\n')
    (tmp_path / "core" / "CHANGELOG.md").write_text(f"# Changes\n\n{heading}\n")
    done = release("mlxfill-v1.2.3", script=script)
    assert done.returncode == 2
    assert f"give {heading!r} its date" in done.stderr


@pytest.mark.parametrize("folder", [ROOT, *MEMBERS], ids=lambda folder: folder.name)
def test_a_changelog_begins_with_the_version_and_its_date(folder: Path) -> None:
    changes = (folder / "CHANGELOG.md").read_text("utf-8")
    first = next(line for line in changes.splitlines() if line.startswith("## "))
    version = re.escape(project(folder)["version"])
    assert re.fullmatch(rf"## {version} \((\d{{4}}-\d\d-\d\d|unreleased)\)", first)


def test_the_workflow_runs_this_script_on_every_supported_python_and_keeps_no_password() -> None:
    workflow = WORKFLOW.read_text("utf-8")
    assert 'python tools/release.py "$GITHUB_REF_NAME"' in workflow
    supported = re.findall(r"'Programming Language :: Python :: (3\.\d+)'", str(project(CORE)))
    assert supported
    assert f"python: {supported}".replace("'", '"') in workflow
    assert "id-token: write" in workflow
    assert "secrets." not in workflow
