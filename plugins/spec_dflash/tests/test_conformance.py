"""Each kind of drafter passes what every plugin should pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mlxfill_spec_dflash.provider import BlockProvider, load_provider
from mlxfill_testing import check_draft_provider, shared_model

if TYPE_CHECKING:
    from pathlib import Path

    from mlxfill import TargetView


@pytest.mark.parametrize("kind", ["dflash", "dflash sliding", "dflash2", "dspark"])
def test_the_drafter_conforms(folders: dict[str, Path], kind: str) -> None:
    def make(target: TargetView) -> BlockProvider:
        return load_provider(folders[kind], target)

    model = shared_model("llama", num_hidden_layers=4)
    found = check_draft_provider(
        make, name="spec-dflash", model=model, examples=8, quick=kind != "dflash"
    )
    assert found.offers > 0
