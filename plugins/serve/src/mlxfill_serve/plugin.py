"""The entry point ``serve``: the command ``mlxfill serve`` and its table in the config."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlxfill import hookimpl
from mlxfill_serve.settings import ServeSettings

if TYPE_CHECKING:
    import typer

MLXFILL_API = 1


@hookimpl
def mlxfill_settings() -> type[ServeSettings]:
    """The table ``[plugins.serve]``."""
    return ServeSettings


@hookimpl
def mlxfill_register_commands(app: typer.Typer) -> None:
    """Add ``mlxfill serve``."""
    from mlxfill_serve.command import serve

    app.command()(serve)
