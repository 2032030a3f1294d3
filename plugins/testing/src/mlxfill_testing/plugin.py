"""The entry point ``testing``: the command ``mlxfill plugins new``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlxfill import hookimpl

if TYPE_CHECKING:
    import typer

MLXFILL_API = 2


@hookimpl
def mlxfill_register_commands(app: typer.Typer) -> None:
    """Add ``new`` to the group ``plugins``."""
    import typer

    from mlxfill_testing.new.command import new

    group = typer.Typer()
    group.command()(new)
    app.add_typer(group, name="plugins")
