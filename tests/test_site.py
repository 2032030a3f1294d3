"""The documentation builds as a site without a warning, and the site stands alone."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from mlxfill.cli.doctor.model import verdict
from mlxfill.policy.cost import CostCurve

ROOT = Path(__file__).parents[1]
FETCHED = re.compile(
    r"<(?:script|img|iframe|source)[^>]*?\ssrc=[\"']?(?:https?:)?//"
    r"|<link[^>]*?rel=[\"']?(?:stylesheet|preconnect|icon|preload)[^>]*?href=[\"']?(?:https?:)?//"
)
FETCHED_BY_STYLE = re.compile(r"url\([\"']?(?:https?:)?//|@import [\"'](?:https?:)?//")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", out],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return out


def test_every_page_is_in_the_site(site: Path) -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        built = site / page.relative_to(ROOT / "docs").with_suffix(".html")
        title = page.read_text("utf-8").splitlines()[0].removeprefix("# ")
        assert title.split("`")[0].strip() in built.read_text("utf-8"), page


def test_every_page_is_in_the_menu_once() -> None:
    menu = re.findall(r"([\w-]+\.md)$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE)
    assert sorted(menu) == sorted(page.name for page in (ROOT / "docs").glob("*.md"))


def test_every_decision_is_in_the_menu(site: Path) -> None:
    menu = (site / "index.html").read_text("utf-8")
    for page in (ROOT / "docs" / "adr").glob("*.md"):
        assert f'href="adr/{page.stem}.html"' in menu


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        assert not FETCHED.search(page.read_text("utf-8")), page
    for sheet in site.rglob("*.css"):
        assert not FETCHED_BY_STYLE.search(sheet.read_text("utf-8")), sheet


def test_what_the_doctor_says_is_explained() -> None:
    page = (ROOT / "docs" / "troubleshooting.md").read_text("utf-8")
    for said in (
        verdict(CostCurve.linear(), ""),
        verdict(CostCurve.free(), ""),
        verdict(CostCurve.linear(), "why"),
    ):
        words = re.sub(r"\d.*?(?=: )|\d+ of .*|\(.*", "...", said).split("...")
        assert all(word.strip() in page for word in words), said
