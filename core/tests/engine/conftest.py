"""What the tests of the engine share: one device, one hypothesis profile, one cache folder."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import mlx.core as mx
import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from pathlib import Path

# Windows and steps are bit-identical on the CPU with the BLAS of the wheel, not on every GPU.
mx.set_default_device(mx.cpu)

EXAMPLES = int(os.environ.get("MLXFILL_EXAMPLES", "300"))
"""How many examples the property tests try together; more are for a long run at home."""

settings.register_profile(
    "engine",
    max_examples=EXAMPLES,
    derandomize=EXAMPLES <= 300,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("engine")


@pytest.fixture(autouse=True)
def own_cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Cost curves that a test stores stay in its own folder."""
    for variable in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(variable, str(tmp_path / "home"))
    return tmp_path / "home"
