"""``mlxfill plugins list`` and ``mlxfill plugins info``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import attrs
import typer

from mlxfill.cli.options.invocation import invocation
from mlxfill.installing import to_install

if TYPE_CHECKING:
    from mlxfill.cli.survey import Status

app = typer.Typer(help="Show the plugins that are installed.")

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command("list")
def list_plugins(ctx: typer.Context, as_json: Json = False) -> None:
    """List plugins: first those that are on, by priority."""
    from mlxfill.cli.survey import survey

    statuses = survey(invocation(ctx).config())
    if as_json:
        typer.echo(json.dumps([attrs.asdict(status) for status in statuses], indent=2))
    elif not statuses:
        typer.echo(f"no plugins are installed; try: {to_install('propose')}")
    else:
        _print_table(statuses)


@app.command()
def info(
    ctx: typer.Context, name: Annotated[str, typer.Argument(metavar="NAME")], as_json: Json = False
) -> None:
    """Show one plugin: its distribution, hooks and settings."""
    from mlxfill.cli.survey import survey
    from mlxfill.plugins import installed_plugin

    statuses = {status.name: status for status in survey(invocation(ctx).config())}
    shown = attrs.asdict(statuses.get(name) or statuses[installed_plugin(name)])
    if as_json:
        typer.echo(json.dumps(shown, indent=2))
    else:
        _print_details(shown)


def _print_table(statuses: list[Status]) -> None:
    rows = [("NAME", "STATE", "VERSION", "DISTRIBUTION", "HOOKS, COMMANDS, MODELS OR PROBLEM")]
    rows += [(s.name, s.state, s.version, s.distribution, _in_short(s)) for s in statuses]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)][:-1]
    for *cells, last in rows:
        padded = (f"{cell:{width}}" for cell, width in zip(cells, widths, strict=True))
        typer.echo("  ".join([*padded, last]).rstrip())


def _in_short(status: Status) -> str:
    """What is wrong with a plugin, else its hooks, else what can be had of it by name."""
    if status.problem or status.hooks:
        return status.problem or ", ".join(h.removeprefix("mlxfill_") for h in status.hooks)
    commands = [f"mlxfill {name}" for name in status.commands]
    return ", ".join([*commands, *(f"--model {name}" for name in status.models)])


def _print_details(shown: dict[str, object]) -> None:
    for key, value in shown.items():
        if isinstance(value, dict):
            for setting, current in value.items():
                typer.echo(f"{'setting':14}{setting} = {current}")
        elif value:
            text = ", ".join(value) if isinstance(value, tuple) else value
            typer.echo(f"{key.replace('_', ' '):14}{text}")
