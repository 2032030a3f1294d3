"""Commands of plugins, without importing a plugin before one of its commands is typed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer
from typer.core import TyperGroup
from typer.main import get_group

from mlxfill.cli.app import unknown_command
from mlxfill.errors import InputError
from mlxfill.installing import to_install
from mlxfill.plugins import PluginManager, scan
from mlxfill.plugins.faults import one_line

if TYPE_CHECKING:
    from mlxfill.cli.options.invocation import Invocation
    from mlxfill.plugins import Claim


def announce(group: TyperGroup) -> None:
    """Put the commands that plugins announce in their metadata on the help pages of ``group``."""
    for name, claims in sorted(scan().commands.items()):
        *groups, command = name.split()
        app = _new_app()
        app.command(command, help=claims[0].summary)(_announced)
        for word in reversed(groups):
            outer = _new_app()
            outer.add_typer(app, name=word)
            app = outer
        _merge(group, get_group(app))


def _announced() -> None:
    """Stand for a command on the help page."""


def add_command(group: TyperGroup, words: str, invocation: Invocation) -> None:
    """Let the plugin that announces the command ``words`` add it to ``group``.

    Words that no plugin announces may be a command all the same: every plugin that is on adds its
    commands.

    :raises PluginError: the announced command cannot be had.
    :raises ConfigError: the config is wrong.
    :raises InputError: its plugin is not installed.
    """
    catalogue = scan()
    if words in catalogue.commands:
        owner = catalogue.owner("command", catalogue.commands[words])
        _merge(group, _announced_commands(owner, words, invocation))
        return
    _merge(group, _any_commands(invocation))
    remedy = to_install(words.replace(" ", "-"))
    if remedy and unknown_command(group, words.split()):
        raise InputError(f"the command {words!r} comes with a plugin: {remedy}")


def _merge(group: TyperGroup, added: TyperGroup) -> None:
    """Put the commands of ``added`` beside those of ``group``, which keeps its own."""
    for name, command in added.commands.items():
        own = group.commands.setdefault(name, command)
        if own is command or not isinstance(own, TyperGroup):
            continue
        if isinstance(command, TyperGroup):
            _merge(own, command)


def _announced_commands(owner: Claim, words: str, invocation: Invocation) -> TyperGroup:
    manager, added = PluginManager.only(owner, invocation.config()), _new_app()
    manager.register_commands(added)
    if manager.faults:
        raise owner.broken(f"fails to add its commands: {manager.faults[0].message}")
    try:
        group = get_group(added)
    except Exception as error:  # typer raises many kinds
        raise owner.broken(f"fails to add its commands: {one_line(error)}") from error
    if unknown_command(group, words.split()):
        raise owner.broken(f"announces the command {words!r} and does not add it")
    return group


def _any_commands(invocation: Invocation) -> TyperGroup:
    """Nobody asked for these plugins: what is wrong with them does not matter here."""
    added = _new_app()
    PluginManager.load(invocation.config(), tolerant=True).register_commands(added)
    try:
        return get_group(added)
    except Exception:  # noqa: BLE001 - typer raises many kinds
        return get_group(_new_app())


def _new_app() -> typer.Typer:
    return typer.Typer(rich_markup_mode=None)  # plain help pages, as those of the core
