"""The application: options that hold for every command, and the commands of the core."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer.core import TyperGroup

COMMANDS = {
    "generate": "mlxfill.cli.generate",
    "resume": "mlxfill.cli.resume",
    "chat": "mlxfill.cli.chat",
    "audit": "mlxfill.cli.audit",
    "doctor": "mlxfill.cli.doctor.command",
    "drafters": "mlxfill.cli.drafters",
    "plugins": "mlxfill.cli.plugins",
    "config": "mlxfill.cli.config",
}
"""Each lies in a module, as a function of its name, or as ``app`` where it has commands itself."""

if TYPE_CHECKING:
    from collections.abc import Sequence


def build(word: str = "") -> typer.Typer:
    """The application with the core's commands; plugins may add theirs to it.

    :param word: the command that is wanted; if it is one of these, no other is imported.
    """
    app = typer.Typer(
        name="mlxfill",
        add_completion=False,
        rich_markup_mode=None,  # plain help: rich would take a third of the time that it may take
    )
    app.callback()(_options)
    for name in (word,) if word in COMMANDS else COMMANDS:
        module = import_module(COMMANDS[name])
        if hasattr(module, "app"):
            app.add_typer(module.app, name=name)
        else:
            app.command(name)(getattr(module, name))
    return app


def unknown_command(group: TyperGroup, arguments: Sequence[str]) -> str | None:
    """The words of a command that ``group`` does not have; None for one that it has.

    "" where the words end at a group, or go on with an option: a help page is wanted.
    """
    words: list[str] = []
    for word in arguments:
        if word.startswith("-"):
            return ""
        words.append(word)
        found = group.commands.get(word)
        if found is None:
            return " ".join(words)
        if not isinstance(found, TyperGroup):
            return None
        group = found
    return ""


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"mlxfill {version('mlxfill')}")
        raise typer.Exit


def _options(
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Read this config file and no other.")
    ] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show a traceback with an error.")] = False,
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    """Makes a language model on MLX answer sooner without changing what it says."""
    # `take_options` has taken --config and --debug by now, from wherever they stood; they are
    # declared for the help page.
