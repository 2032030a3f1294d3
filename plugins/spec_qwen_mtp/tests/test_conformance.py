"""The drafter passes what every plugin should pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mlxfill_spec_qwen_mtp.chain import Head
from mlxfill_spec_qwen_mtp.provider import MtpProvider
from mlxfill_testing import check_draft_provider

if TYPE_CHECKING:
    from collections.abc import Callable

    from mlxfill import TargetView
    from mlxfill_spec_qwen_mtp.head import MtpHead
    from mlxfill_spec_qwen_mtp.settings import HeldRows


@pytest.mark.parametrize("held_rows", ["true", "chained"])
@pytest.mark.parametrize("vocabulary", [None, tuple(range(0, 64, 3))], ids=["all", "some"])
def test_the_drafter_conforms(
    make_head: Callable[..., MtpHead], held_rows: HeldRows, vocabulary: tuple[int, ...] | None
) -> None:
    module = make_head(0.1)

    def make(target: TargetView) -> MtpProvider:
        return MtpProvider(Head(module, target, vocabulary), 3, held_rows, "memory")

    found = check_draft_provider(make, name="spec-qwen-mtp", examples=15)
    assert found.offers > 0
