"""What the tests share: an empty working folder, and the tiny model, loaded once."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import mlx.core as mx
import pytest

import mlxfill
from mlxfill_bench import SAMPLES, Measurement, Plan, measure, read_prompts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

mx.set_default_device(mx.cpu)


@pytest.fixture(autouse=True)
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder of a user without any config; cost curves stay in it."""
    for variable in os.environ:
        if variable.startswith("MLXFILL_"):
            monkeypatch.delenv(variable)
    for variable in ("HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(variable, str(tmp_path / "home"))
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture(scope="session")
def plain() -> Iterator[mlxfill.Engine]:
    """The tiny model without plugins."""
    with mlxfill.load("tiny", plugins=[], config={}) as engine:
        yield engine


@pytest.fixture(scope="session")
def measured() -> Measurement:
    """Two prompts, answered by three arms twice."""
    plan = Plan(
        model="tiny",
        prompts=read_prompts(SAMPLES)[:2],
        arms=["spec-ngram", "fill-strict", "spec-ngram+draft=tiny-draft"],
        rounds=2,
        max_tokens=60,
    )
    return measure(plan, mlxfill.load_config({"gate": {"enabled": False}}))
