"""The drafter passes what every plugin should pass, whatever caches its model has."""

from __future__ import annotations

import pytest

from mlxfill_spec_two_model import TwoModelSettings
from mlxfill_spec_two_model.chain import DraftModel
from mlxfill_spec_two_model.provider import TwoModelProvider
from mlxfill_testing import VOCAB, check_draft_provider, shared_model


@pytest.mark.parametrize("name", ["llama", "qwen3_5"])
def test_the_drafter_conforms(name: str) -> None:
    def make(_: object) -> TwoModelProvider:
        model = DraftModel(shared_model(name), VOCAB)
        return TwoModelProvider(model, TwoModelSettings(), "memory")

    found = check_draft_provider(make, name="spec-two-model", examples=20)
    assert found.offers > 0
