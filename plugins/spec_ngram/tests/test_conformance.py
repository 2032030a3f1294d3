"""The source and the drafter pass what every plugin should pass."""

from __future__ import annotations

from functools import partial

import pytest

from mlxfill_spec_ngram import NgramSettings, plugin
from mlxfill_testing import check_draft_provider, check_proposal_source

each_setting = pytest.mark.parametrize(
    "settings",
    [NgramSettings(), NgramSettings(adaptive=False, match="first")],
    ids=["own", "published"],
)


@each_setting
def test_the_source_conforms(settings: NgramSettings) -> None:
    factory = partial(plugin.mlxfill_proposal_sources, settings=settings)
    assert check_proposal_source(factory, name="spec-ngram").offers > 0


@each_setting
def test_the_drafter_conforms(settings: NgramSettings) -> None:
    (kind,) = plugin.mlxfill_draft_kinds()
    found = check_draft_provider(
        lambda target: kind.load(None, target, settings), name="spec-ngram"
    )
    assert found.offers > 0
