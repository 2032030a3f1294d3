"""The entry point ``diffusion``: a generation method for models that have a mask token."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mlxfill
from mlxfill_diffusion.settings import DiffusionSettings

if TYPE_CHECKING:
    from mlxfill import GenerationMethod, Request, TargetView

MLXFILL_API = 2
ALPHABET = Path(__file__).with_name("models") / "alphabet"
BLOCK = 32
"""Tokens that are unmasked together where the model's config does not say."""


@mlxfill.hookimpl
def mlxfill_settings() -> type[DiffusionSettings]:
    """The table ``[plugins.diffusion]``."""
    return DiffusionSettings


@mlxfill.hookimpl
def mlxfill_resolve_model(name: str) -> Path | None:
    """The toy model ``alphabet``."""
    return ALPHABET if name == "alphabet" else None


@mlxfill.hookimpl
def mlxfill_generation_method(
    target: TargetView,
    request: Request,  # noqa: ARG001 - every request to such a model
    settings: DiffusionSettings | None,
) -> GenerationMethod | None:
    """Unmask, where the model's config names a mask token, as LLaDA's does; else leave it alone."""
    config = _config(target.path)
    mask = config.get("mask_token_id")
    if not isinstance(mask, int):
        return None
    from mlxfill_diffusion.denoiser import Denoiser

    return Denoiser(
        target, mask, int(config.get("block_length", BLOCK)), settings or DiffusionSettings()
    )


def _config(folder: Path | None) -> dict[str, Any]:
    if folder is None or not (folder / "config.json").is_file():
        return {}
    config: dict[str, Any] = json.loads((folder / "config.json").read_text("utf-8"))
    return config
