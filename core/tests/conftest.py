from __future__ import annotations

import os
from importlib.metadata import PackageNotFoundError

import pytest

from mlxfill_testing.workplaces import site, workplace

__all__ = ["site", "workplace"]


@pytest.fixture(autouse=True)
def from_an_index(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remedies name distributions, as they do for someone who has no clone."""

    def nowhere(name: str) -> None:
        raise PackageNotFoundError(name)

    monkeypatch.setattr("mlxfill.installing.distribution", nowhere)


@pytest.fixture(autouse=True)
def quiet_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever else runs beside the tests, the programs under test see an idle machine."""
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))
