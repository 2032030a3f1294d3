"""The entry point ``spec-dflash``: a kind of drafter."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mlxfill import DraftKind, TargetView, hookimpl
from mlxfill_spec_dflash.config import is_known

if TYPE_CHECKING:
    from mlxfill import DraftProvider

MLXFILL_API = 2


@hookimpl
def mlxfill_draft_kinds() -> list[DraftKind]:
    """DFlash, DFlash2 and DSpark drafters with layers of Qwen3."""
    return [DraftKind(name="dflash", origin="draft", detect=is_known, load=_load)]


def _load(artifact: Path | None, target: TargetView, _settings: object) -> DraftProvider:
    from mlxfill_spec_dflash.provider import load_provider

    assert artifact is not None  # noqa: S101 - this kind needs an artifact, so there is one
    return load_provider(artifact, target)
