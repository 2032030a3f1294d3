"""Commands of plugins, without importing a plugin before one of its commands is typed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typer.main import get_group

from mlxfill.plugins import PluginManager, scan

if TYPE_CHECKING:
    import typer

    from mlxfill.cli.invocation import Invocation
    from mlxfill.plugins import Catalogue


def announce(app: typer.Typer) -> None:
    """Put the commands that plugins announce in their metadata on the help page of ``app``."""
    own = get_group(app).commands
    for name, claims in sorted(scan().commands.items()):
        if name not in own:
            app.command(name, help=claims[0].summary)(_announced)


def _announced() -> None:
    """Stand for a command on the help page."""


def add_command(app: typer.Typer, word: str, invocation: Invocation) -> None:
    """Let the plugin that announces the command ``word`` add it to ``app``.

    A word that no plugin announces may be a command all the same: every plugin that is on adds
    its commands.

    :raises PluginError: the announced command cannot be had.
    :raises ConfigError: the config is wrong.
    """
    catalogue = scan()
    if word in catalogue.commands:
        _add_announced(app, word, catalogue, invocation)
    else:
        PluginManager.load(invocation.config(), tolerant=True).register_commands(app)


def _add_announced(
    app: typer.Typer, word: str, catalogue: Catalogue, invocation: Invocation
) -> None:
    owner = catalogue.owner("command", catalogue.commands[word])
    manager = PluginManager.only(owner, invocation.config())
    manager.register_commands(app)
    if manager.faults:
        raise owner.broken(f"fails to add its commands: {manager.faults[0].message}")
    if word not in get_group(app).commands:
        raise owner.broken(f"announces the command {word!r} and does not add it")
