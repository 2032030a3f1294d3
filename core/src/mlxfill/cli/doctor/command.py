"""The command ``mlxfill doctor``."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from mlxfill.cli.options.invocation import invocation


def doctor(
    ctx: typer.Context,
    model: Annotated[
        str | None, typer.Option(metavar="NAME", help="Also examine this model.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show versions, device, plugins and what stands in the way.

    Ends with exit code 1 when there is a problem.
    """
    from rich.console import Console

    from mlxfill.cli.doctor.checkup import check
    from mlxfill.cli.terminal.waiting import waiting

    with waiting(Console(stderr=True, quiet=as_json), "looking"):
        found = check(invocation(ctx), model)
    if as_json:
        typer.echo(json.dumps(found.as_dict(), indent=2, default=str))
    else:
        from mlxfill.cli.doctor.page import page

        console = Console(highlight=False, soft_wrap=True)
        if not console.is_terminal:  # whoever reads a file or a pipe wants paths in one piece
            console.width = sys.maxsize
        bar = "█" if console.encoding.startswith("utf") else "#"
        console.print(page(found, bar))
    if found.problems:
        raise typer.Exit(1)
