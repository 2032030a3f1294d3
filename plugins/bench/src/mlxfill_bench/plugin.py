"""The entry point ``bench``: the command ``mlxfill bench``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlxfill import hookimpl

if TYPE_CHECKING:
    import typer

MLXFILL_API = 1


@hookimpl
def mlxfill_register_commands(app: typer.Typer) -> None:
    """Add ``mlxfill bench``."""
    from mlxfill_bench import command

    app.add_typer(command.app, name="bench")
