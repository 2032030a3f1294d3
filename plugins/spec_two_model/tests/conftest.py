"""What the tests share: the CPU, one hypothesis profile, drafters made in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import pytest
from hypothesis import HealthCheck, settings

from mlxfill import DraftKind
from mlxfill_spec_two_model import TwoModelSettings
from mlxfill_spec_two_model.chain import DraftModel
from mlxfill_spec_two_model.provider import TwoModelProvider
from mlxfill_testing import VOCAB, Guest

# Windows and steps are bit-identical on the CPU with the BLAS of the wheel, not on every GPU.
mx.set_default_device(mx.cpu)

settings.register_profile(
    "model drafts",
    max_examples=10,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


def pytest_collectstart(collector: pytest.Collector) -> None:  # noqa: ARG001 - the hook's name
    """These tests have a profile of their own."""
    settings.load_profile("model drafts")


@pytest.fixture(autouse=True)
def own_cache_folder(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is read from or written to the user's own folders."""
    for variable in ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(variable, str(tmp_path / "home"))


class Mounted:
    """A draft model as the kind of drafter that ``Guest`` offers."""

    def __init__(self, model: Any, settings: TwoModelSettings) -> None:
        self.model, self.settings = model, settings

    def kind(self, origin: str) -> DraftKind:
        """Needs no folder: the model is here."""

        def load(*_: object) -> TwoModelProvider:
            return TwoModelProvider(DraftModel(self.model, VOCAB), self.settings, "memory")

        return DraftKind("scripted", origin, lambda _folder: False, load, needs_artifact=False)


@pytest.fixture
def drafting() -> Callable[..., Guest]:
    """Make a plugin that drafts with a model, plus whatever else a ``Guest`` can do."""

    def make(model: Any, settings: TwoModelSettings | None = None, **more: Any) -> Guest:
        return Guest(drafter=Mounted(model, settings or TwoModelSettings()), **more)  # type: ignore[arg-type]

    return make
