"""The entry point ``spec-qwen-mtp``: a kind of drafter, and the command ``mlxfill mtp``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from mlxfill import DraftKind, TargetView, hookimpl
from mlxfill_spec_qwen_mtp.settings import MtpSettings

if TYPE_CHECKING:
    import typer

    from mlxfill import DraftProvider

MLXFILL_API = 1


@hookimpl
def mlxfill_register_commands(app: typer.Typer) -> None:
    """Add ``mlxfill mtp split``."""
    from mlxfill_spec_qwen_mtp.command import build

    app.add_typer(build(), name="mtp")


@hookimpl
def mlxfill_settings() -> type[MtpSettings]:
    """The table ``[plugins.spec-qwen-mtp]``."""
    return MtpSettings


@hookimpl
def mlxfill_draft_kinds() -> list[DraftKind]:
    """A head split off a release: a folder whose ``model_type`` ends in ``_mtp``."""
    return [DraftKind(name="qwen-mtp", origin="mtp", detect=_detect, load=_load)]


def _detect(folder: Path) -> bool:
    try:
        model_type = json.loads((folder / "config.json").read_text("utf-8"))["model_type"]
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return isinstance(model_type, str) and model_type.endswith("_mtp")


def _load(artifact: Path | None, target: TargetView, settings: MtpSettings | None) -> DraftProvider:
    from mlxfill_spec_qwen_mtp.provider import load_provider

    assert artifact is not None  # noqa: S101 - this kind needs an artifact, so there is one
    return load_provider(artifact, target, settings or MtpSettings())
