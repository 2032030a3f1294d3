"""``mlxfill config show`` and ``mlxfill config check``."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import typer

from mlxfill.cli.options.invocation import invocation

if TYPE_CHECKING:
    from collections.abc import Iterable

app = typer.Typer(help="Show and check the config.")


@app.command()
def show(ctx: typer.Context) -> None:
    """Print every value with the place it came from."""
    from mlxfill.config.show import entries
    from mlxfill.plugins import PluginManager

    config = invocation(ctx).config()
    manager = PluginManager.load(config)
    shown = list(entries(config, {name: manager.settings(name) for name in manager.names}))
    left = max(len(f"{entry.key} = {entry.value}") for entry in shown)
    for entry in shown:
        typer.echo(f"{f'{entry.key} = {entry.value}':{left}}  # {entry.source}")
    _warn_of_unread(entry.key for entry in shown)


@app.command()
def check(ctx: typer.Context) -> None:
    """Check the config, its plugins, and tables of plugins that are off.

    Ends with exit code 2 when something is wrong.
    """
    from mlxfill.cli.survey import mistakes_of_those_off
    from mlxfill.config.show import entries
    from mlxfill.errors import ConfigError, PluginError
    from mlxfill.plugins import PluginManager

    config, mistakes = invocation(ctx).examined_config()
    mistakes += mistakes_of_those_off(config)
    manager, settings = PluginManager(), {}
    try:
        manager = PluginManager.load(config)
    except (ConfigError, PluginError) as error:
        mistakes += str(error).splitlines()
    else:
        settings = {name: manager.settings(name) for name in manager.names}
    _warn_of_unread(entry.key for entry in entries(config, settings))
    if mistakes:
        raise ConfigError("\n".join(mistakes))
    for fault in manager.faults:
        typer.echo(f"skipped: {fault.message}", err=True)
    typer.echo(
        f"{config.file or 'no config file'}: ok, plugins on: {', '.join(manager.names) or 'none'}"
    )


def _warn_of_unread(keys: Iterable[str]) -> None:
    from mlxfill.config.environment import unread

    for line in unread(os.environ, keys):
        typer.echo(f"warning: {line}", err=True)
