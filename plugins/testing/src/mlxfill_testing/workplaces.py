"""Fixtures of tests of mlxfill itself: a user's empty folder, and a site for fake plugins.

A ``conftest.py`` imports those that it wants.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from mlxfill_testing.installed import FakeSite

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder of a user without any config."""
    for variable in os.environ:
        if variable.startswith("MLXFILL_"):
            monkeypatch.delenv(variable)
    for variable in ("HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(variable, str(tmp_path / "home"))
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeSite]:
    """A place in front of everything installed where fake plugins go."""
    site = FakeSite(tmp_path / "site")
    monkeypatch.syspath_prepend(site.folder)
    yield site
    site.forget()
