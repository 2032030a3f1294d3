"""The command ``mlxfill demo``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mlxfill.cli.options.invocation import invocation


def demo(
    ctx: typer.Context,
    svg: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also save a picture of two asks.")
    ] = None,
) -> None:
    """Show the tiny model answer, plainly and with plugins."""
    from rich.console import Console

    from mlxfill.cli.demo.asks import demo_asks
    from mlxfill.cli.demo.picture import block, colours, heading, summary
    from mlxfill.cli.demo.race import Race
    from mlxfill.cli.terminal.outputs import check_output
    from mlxfill.cli.terminal.waiting import waiting

    if svg is not None:
        check_output("--svg", svg)
    console, errors = Console(highlight=False), Console(stderr=True, highlight=False)
    config = invocation(ctx).config()
    outcomes = []
    with waiting(errors, "loading the tiny model"):
        race = Race(config)
    with race:
        console.print(heading(race.gated), "", sep="\n")
        for ask in demo_asks():
            with waiting(errors, f"running: {ask.title}"):
                outcome = race.run(ask)
            outcomes.append(outcome)
            console.print(block(race.gated, outcome))
        console.print(colours(outcomes), "", summary(outcomes), sep="\n")
        if svg is not None:
            from mlxfill.cli.demo.svg import save

            save(svg, race.gated, outcomes)
    if not all(outcome.identical for outcome in outcomes):
        raise typer.Exit(1)
