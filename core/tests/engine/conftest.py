"""What the tests of the engine share: one device, one hypothesis profile, one cache folder."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import mlx.core as mx
import pytest
from hypothesis import HealthCheck, Phase, settings

if TYPE_CHECKING:
    from pathlib import Path

# Windows and steps are bit-identical on the CPU with the BLAS of the wheel, not on every GPU.
mx.set_default_device(mx.cpu)

COMMON = 40
EXAMPLES = int(os.environ.get("MLXFILL_EXAMPLES", str(COMMON)))
"""How many examples each property is tried on; a run that asks for more also tries new ones."""

settings.register_profile(
    "engine",
    max_examples=EXAMPLES,
    derandomize=EXAMPLES <= COMMON,
    deadline=None,
    print_blob=True,
    # Examples are small as they are; shrinking one would take minutes.
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.target],
    # Each example starts with a cache folder that the previous one may have used: as users do.
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


def pytest_collectstart(collector: pytest.Collector) -> None:  # noqa: ARG001 - the hook's name
    """These tests have a profile of their own."""
    settings.load_profile("engine")


@pytest.fixture(autouse=True)
def own_cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Cost curves that a test stores stay in its own folder."""
    for variable in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(variable, str(tmp_path / "home"))
    return tmp_path / "home"
