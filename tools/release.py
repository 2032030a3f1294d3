"""Prepare the release of one distribution, as the workflow does before it publishes.

    python tools/release.py mlxfill-fill-echo-v0.1.0 [--out DIR] [--draft] [--url URL]

A tag is the distribution's name, ``-v`` and its version.  Checks that ``pyproject.toml`` and
changelog agree with it, builds sdist and wheel (the wheel from the sdist), has twine check both and
leaves them in ``DIR/NAME-VERSION`` (``build/dist``).  ``--draft``: the changelog may still say
"unreleased".  ``--url``: where the repository is, for the project's links; found in the workflow's
environment or the remote ``origin`` otherwise.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from attrs import frozen

ROOT = Path(__file__).parents[1]
TAG = re.compile(r"(mlxfill(?:-[a-z0-9-]+?)?)-v(\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?)")
DATED = re.compile(r"## \S+ \(\d{4}-\d\d-\d\d\)")


class ReleaseError(Exception):
    """Why this tag cannot be released, in one line."""


@frozen
class Release:
    """One distribution at one version."""

    name: str
    version: str

    @classmethod
    def of(cls, tag: str) -> Release:
        """What a tag names.  Raises ``ReleaseError``."""
        match = TAG.fullmatch(tag)
        if match is None:
            raise ReleaseError(f"tag {tag!r} is not NAME-vX.Y.Z, as in mlxfill-fill-echo-v0.1.0")
        return cls(match[1], match[2])

    @property
    def folder(self) -> Path:
        """Where the distribution lives."""
        if self.name == "mlxfill":
            return ROOT / "core"
        return ROOT / "plugins" / self.name.removeprefix("mlxfill-").replace("-", "_")

    def check(self, *, draft: bool) -> None:
        """Raise ``ReleaseError`` unless files and tag agree."""
        project = self.folder / "pyproject.toml"
        if not project.is_file():
            raise ReleaseError(f"there is no distribution {self.name!r}: {project} is missing")
        version = tomllib.loads(project.read_text("utf-8"))["project"]["version"]
        if version != self.version:
            raise ReleaseError(f"{project} says version {version}, the tag says {self.version}")
        heading = f"## {self.version}"
        changes = (self.folder / "CHANGELOG.md").read_text("utf-8").splitlines()
        headings = [line for line in changes if line.startswith(heading)]
        if not headings:
            raise ReleaseError(f"{self.folder}/CHANGELOG.md has no section {heading!r}")
        if not draft and not DATED.fullmatch(headings[0]):
            raise ReleaseError(f"{self.folder}/CHANGELOG.md: give {headings[0]!r} its date")

    def build(self, out: Path, url: str) -> list[Path]:
        """Sdist and wheel in ``out``, checked by twine.  Raises ``CalledProcessError``."""
        shutil.rmtree(out, ignore_errors=True)
        with tempfile.TemporaryDirectory() as scratch:
            copy = Path(scratch, self.folder.name)
            shutil.copytree(self.folder, copy, ignore=shutil.ignore_patterns("__pycache__", ".*"))
            if url:
                with (copy / "pyproject.toml").open("a", encoding="utf-8") as project:
                    project.write(self.links(url))
            run("build", "--no-isolation", "--outdir", out.absolute(), copy)
        made = sorted(out.iterdir())
        run("twine", "check", "--strict", *made)
        return made

    def links(self, url: str) -> str:
        """The table of the project's links, for the end of its ``pyproject.toml``."""
        at = f"{url}/blob/{self.name}-v{self.version}/{self.folder.relative_to(ROOT).as_posix()}"
        return (
            f'\n[project.urls]\nRepository = "{url}"\nDocumentation = "{at}/README.md"\n'
            f'Changelog = "{at}/CHANGELOG.md"\nIssues = "{url}/issues"\n'
        )


def repository() -> str:
    """Where the repository is, by the workflow's environment or the remote ``origin``; or ""."""
    server, name = os.environ.get("GITHUB_SERVER_URL"), os.environ.get("GITHUB_REPOSITORY")
    if server and name:
        return f"{server}/{name}"
    asked = subprocess.run(  # noqa: S603 - a command written here
        ["git", "-C", str(ROOT), "remote", "get-url", "origin"],  # noqa: S607 - the developer's git
        capture_output=True,
        text=True,
        check=False,
    )
    url = asked.stdout.strip().removesuffix(".git")
    return url if url.startswith("https://") else ""


def run(module: str, *arguments: object) -> None:
    """Run ``python -m module``."""
    subprocess.run(  # noqa: S603 - modules and files named here
        [sys.executable, "-m", module, *map(str, arguments)], check=True
    )


def main() -> int:
    """Prepare the release that the command line names."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("tag")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "dist")
    parser.add_argument("--draft", action="store_true", help="the changelog may say: unreleased")
    parser.add_argument("--url", default=repository(), help="where the repository is")
    options = parser.parse_args()
    try:
        release = Release.of(options.tag)
        release.check(draft=options.draft)
    except ReleaseError as error:
        parser.exit(2, f"error: {error}\n")
    for file in release.build(options.out / f"{release.name}-{release.version}", options.url):
        sys.stdout.write(f"{file}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
