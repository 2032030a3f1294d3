"""Prepare the release of one distribution, as the workflow does before it publishes.

    python tools/release.py mlxfill-fill-echo-v0.1.0 [--out DIR] [--draft]

A tag is the distribution's name, ``-v`` and its version.  Checks that ``pyproject.toml`` and
changelog agree with it, builds sdist and wheel (the wheel from the sdist), has twine check both and
leaves them in ``DIR/NAME-VERSION`` (``build/dist``).  ``--draft``: the changelog may still say
"unreleased".
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
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

    def build(self, out: Path) -> list[Path]:
        """Sdist and wheel in ``out``, checked by twine.  Raises ``CalledProcessError``."""
        shutil.rmtree(out, ignore_errors=True)
        run("build", "--no-isolation", "--outdir", out, self.folder)
        made = sorted(out.iterdir())
        run("twine", "check", "--strict", *made)
        return made


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
    options = parser.parse_args()
    try:
        release = Release.of(options.tag)
        release.check(draft=options.draft)
    except ReleaseError as error:
        parser.exit(2, f"error: {error}\n")
    for file in release.build(options.out / f"{release.name}-{release.version}"):
        sys.stdout.write(f"{file}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
