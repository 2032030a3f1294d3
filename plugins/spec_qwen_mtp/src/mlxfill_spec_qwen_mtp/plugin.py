"""The entry point ``spec-qwen-mtp``: a kind of drafter, and the command ``mlxfill mtp``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mlxfill import DrafterError, DraftKind, TargetView, baked_head, hookimpl
from mlxfill_spec_qwen_mtp.config import MODEL_TYPES, is_release, read_json
from mlxfill_spec_qwen_mtp.settings import MtpSettings

if TYPE_CHECKING:
    import typer

    from mlxfill import DraftProvider

MLXFILL_API = 2


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
    """A head of the Qwen3.5 family: split off a release, or still among its weights."""
    return [
        DraftKind(
            name="qwen-mtp",
            origin="mtp",
            detect=_detect,
            load=_load,
            subfolder="mtp",
            baked=_baked,
        )
    ]


def _detect(folder: Path) -> bool:
    try:
        return read_json(folder / "config.json").get("model_type") in MODEL_TYPES
    except DrafterError:
        return False


def _baked(folder: Path) -> bool:
    """Whether the weights of a target of this family hold its head."""
    head = baked_head(folder)
    return head is not None and bool(head.tensors) and is_release(head)


def _load(artifact: Path | None, target: TargetView, settings: MtpSettings | None) -> DraftProvider:
    from mlxfill_spec_qwen_mtp.provider import load_provider

    assert artifact is not None  # noqa: S101 - this kind needs an artifact, so there is one
    return load_provider(artifact, target, settings or MtpSettings())
