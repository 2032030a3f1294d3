"""One device for all tests of the checks, and a place to write new plugins into."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import mlx.core as mx
import pytest

from mlxfill_testing.installed import FakeSite

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Windows and steps are bit-identical on the CPU with the BLAS of the wheel, not on every GPU.
mx.set_default_device(mx.cpu)


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
