"""The command ``mlxfill drafters``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mlxfill.cli.options.invocation import invocation

if TYPE_CHECKING:
    from mlxfill.drafters.find import FoundDrafter

MB = 1_000_000


def drafters(
    ctx: typer.Context,
    model: Annotated[
        str | None, typer.Argument(metavar="[MODEL]", help="Folder, name or hub id of a model.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the drafters for a model, the most promising first.

    They lie in its folder, beside it, with a plugin or in the hub cache; or are published for it.
    """
    from mlxfill.cli.options.loading import Loading
    from mlxfill.drafters.find import find_drafters
    from mlxfill.drafters.places import cached
    from mlxfill.engine.find_model import find
    from mlxfill.plugins import PluginManager

    config = invocation(ctx).config()
    name = Loading(model=model).model_name(config)
    plugins = PluginManager.load(config)
    on_hub = name.count("/") == 1 and not name.startswith((".", "/", "~"))
    folder = cached(name) if on_hub and not Path(name).is_dir() else find(plugins, name)
    found = find_drafters(plugins, name, folder)
    if as_json:
        typer.echo(json.dumps([each.as_dict() for each in found], indent=2))
        return
    if not found:
        typer.echo(f"no drafter for {name} is known, here or in the table of published ones")
    _print_table(found)


def _print_table(found: list[FoundDrafter]) -> None:
    """Two lines each, so that a command is in one piece."""
    for each in found:
        size = "" if each.size is None else f", {each.size / MB:,.1f} MB"
        typer.echo(f"{each.method}: {each.name or each.folder}, {each.where}{size}")
        typer.echo(f"  {f'does not fit: {each.misfit}' if each.misfit else each.command}")
