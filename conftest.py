"""What all tests share: patience with a busy machine, operations that are not fused, and a profile
of hypothesis, which some folders replace by one of their own.

MLX's CPU backend has the C++ compiler build each fused kernel: a second each, a few hundred times
on a machine that has not run the tests before.  Tests of what is compiled ask for ``fused``.

Profiles are loaded when a module is collected, not when its ``conftest.py`` is: pytest reads all of
those first, and the last one would decide for every folder.
"""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING

import mlx.core as mx
import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from collections.abc import Iterator

os.environ.setdefault("MLX_DISABLE_COMPILE", "1")  # for processes that tests start
mx.disable_compile()
settings.register_profile("common", max_examples=40, derandomize=True, deadline=None)


@pytest.hookimpl(tryfirst=True)
def pytest_collectstart(collector: pytest.Collector) -> None:  # noqa: ARG001 - the hook's name for it
    """Begin each module with the common profile."""
    settings.load_profile("common")


@pytest.fixture(autouse=True, scope="session")
def no_source_is_slow() -> Iterator[None]:
    """Leave no source out because the machine is busy; tests of slow ones say what is slow."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mlxfill.engine.builder.PROPOSE_BUDGET_S", math.inf)
        yield


@pytest.fixture
def fused() -> Iterator[None]:
    """Let ``mx.compile`` fuse operations, as in use."""
    mx.enable_compile()
    yield
    mx.disable_compile()
