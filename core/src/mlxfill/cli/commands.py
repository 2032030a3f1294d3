"""Commands of plugins, without importing a plugin before one of its commands is typed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer
from typer.main import get_group

from mlxfill.errors import InputError
from mlxfill.installing import pip_install
from mlxfill.plugins import PluginManager, scan
from mlxfill.plugins.faults import one_line

if TYPE_CHECKING:
    from mlxfill.cli.invocation import Invocation
    from mlxfill.plugins import Claim

ELSEWHERE = {
    "bench": "mlxfill-bench",
    "mtp": "mlxfill-spec-qwen-mtp",
    "serve": "mlxfill-serve",
    "tune": "mlxfill-bench",
}
"""Commands of plugins that the documentation speaks of, and the distributions that bring them."""


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
    :raises InputError: its plugin is not installed.
    """
    catalogue = scan()
    if word in catalogue.commands:
        owner = catalogue.owner("command", catalogue.commands[word])
        added = _announced_commands(owner, word, invocation)
    else:
        added = _any_commands(invocation)
        if word in ELSEWHERE and word not in get_group(added).commands:
            raise InputError(
                f"the command {word!r} comes with a plugin: {pip_install(ELSEWHERE[word])}"
            )
    app.add_typer(added)  # without a name: its commands stand beside those of the core


def _announced_commands(owner: Claim, word: str, invocation: Invocation) -> typer.Typer:
    manager, added = PluginManager.only(owner, invocation.config()), typer.Typer()
    manager.register_commands(added)
    if manager.faults:
        raise owner.broken(f"fails to add its commands: {manager.faults[0].message}")
    cause = _mistake(added)
    if cause:
        raise owner.broken(f"fails to add its commands: {cause}")
    if word not in get_group(added).commands:
        raise owner.broken(f"announces the command {word!r} and does not add it")
    return added


def _any_commands(invocation: Invocation) -> typer.Typer:
    """Nobody asked for these plugins: what is wrong with them does not matter here."""
    added = typer.Typer()
    PluginManager.load(invocation.config(), tolerant=True).register_commands(added)
    return typer.Typer() if _mistake(added) else added


def _mistake(app: typer.Typer) -> str:
    """What is wrong with the signature of a command, "" for nothing."""
    try:
        get_group(app)
    except Exception as error:  # noqa: BLE001 - typer raises many kinds
        return one_line(error)
    return ""
