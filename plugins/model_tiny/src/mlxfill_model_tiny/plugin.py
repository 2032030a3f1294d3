"""The entry point: names to folders, and the command ``mlxfill demo``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mlxfill
from mlxfill_model_tiny.folders import FOLDERS

if TYPE_CHECKING:
    from pathlib import Path

    import typer

MLXFILL_API = 2


@mlxfill.hookimpl
def mlxfill_resolve_model(name: str) -> Path | None:
    """The folder of one of the models of this package; None for any other name."""
    return FOLDERS.get(name)


@mlxfill.hookimpl
def mlxfill_register_commands(app: typer.Typer) -> None:
    """Add ``mlxfill demo``."""
    from mlxfill_model_tiny.demo.command import demo

    app.command()(demo)
