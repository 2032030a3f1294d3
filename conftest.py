"""What all tests share: a hypothesis profile, which some folders replace by one of their own.

Profiles are loaded when a module is collected, not when its ``conftest.py`` is: pytest reads all of
those first, and the last one would decide for every folder.
"""

from __future__ import annotations

import pytest
from hypothesis import settings

settings.register_profile("common", max_examples=40, derandomize=True, deadline=None)


@pytest.hookimpl(tryfirst=True)
def pytest_collectstart(collector: pytest.Collector) -> None:  # noqa: ARG001 - the hook's name for it
    """Begin each module with the common profile."""
    settings.load_profile("common")
