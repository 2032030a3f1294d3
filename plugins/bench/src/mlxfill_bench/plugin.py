"""The entry point ``bench``: the commands ``mlxfill bench`` and ``mlxfill tune``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlxfill import hookimpl

if TYPE_CHECKING:
    import typer

MLXFILL_API = 2


@hookimpl
def mlxfill_register_commands(app: typer.Typer) -> None:
    """Add ``mlxfill bench`` and ``mlxfill tune``."""
    from mlxfill_bench import command, tuning

    app.add_typer(command.app, name="bench")
    app.command()(tuning.tune)
