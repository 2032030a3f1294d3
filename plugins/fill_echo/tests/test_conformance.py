"""The source passes what every plugin should pass."""

from __future__ import annotations

from functools import partial

import pytest

from mlxfill_fill_echo import EchoSettings, plugin
from mlxfill_testing import check_proposal_source


@pytest.mark.parametrize("settings", [EchoSettings(), EchoSettings(k=2, assert_=True)], ids=str)
def test_the_source_conforms(settings: EchoSettings) -> None:
    factory = partial(plugin.mlxfill_proposal_sources, settings=settings)
    assert check_proposal_source(factory, name="fill-echo").offers > 0
