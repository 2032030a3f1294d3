"""The entry point ``spec-two-model``: the kind of drafter for any full model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mlxfill import DraftKind, TargetView, folder_format, hookimpl
from mlxfill_spec_two_model.settings import TwoModelSettings

if TYPE_CHECKING:
    from mlxfill import DraftProvider

MLXFILL_API = 2


@hookimpl
def mlxfill_settings() -> type[TwoModelSettings]:
    """The table ``[plugins.spec-two-model]``."""
    return TwoModelSettings


@hookimpl
def mlxfill_draft_kinds() -> list[DraftKind]:
    """A draft model, asked last: other kinds know their artifacts better."""
    return [
        DraftKind(name="two-model", origin="draft", detect=_detect, load=_load, fallback=True),
    ]


def _detect(folder: Path) -> bool:
    """Whether a folder holds a model that can stand alone; no head and no other drafter can."""
    return folder_format(folder).is_model


def _load(
    artifact: Path | None, target: TargetView, settings: TwoModelSettings | None
) -> DraftProvider:
    from mlxfill_spec_two_model.provider import load_provider

    assert artifact is not None  # noqa: S101 - this kind needs an artifact, so there is one
    return load_provider(artifact, target, settings or TwoModelSettings())
