"""The command ``mlxfill demo``."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from rich.console import Console


def demo(
    ctx: typer.Context,
    svg: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also save a picture of two asks.")
    ] = None,
) -> None:
    """Show the tiny model answer, plainly and with plugins."""
    from rich.console import Console

    from mlxfill import check_output
    from mlxfill_model_tiny.demo.asks import demo_asks
    from mlxfill_model_tiny.demo.picture import block, colours, heading, summary
    from mlxfill_model_tiny.demo.race import Race

    if svg is not None:
        check_output("--svg", svg)
    console, errors = Console(highlight=False), Console(stderr=True, highlight=False)
    config = ctx.obj.config()
    outcomes = []
    with _waiting(errors, "loading the tiny model"):
        race = Race(config)
    with race:
        console.print(heading(race.gated), "", sep="\n")
        for ask in demo_asks():
            with _waiting(errors, f"running: {ask.title}"):
                outcome = race.run(ask)
            outcomes.append(outcome)
            console.print(block(race.gated, outcome))
        console.print(colours(outcomes), "", summary(outcomes), sep="\n")
        if svg is not None:
            from mlxfill_model_tiny.demo.svg import save

            save(svg, race.gated, outcomes)
    if not all(outcome.identical for outcome in outcomes):
        raise typer.Exit(1)


def _waiting(console: Console, what: str) -> AbstractContextManager[Any]:
    """A spinner while the block runs, on a terminal."""
    if not console.is_terminal:
        return nullcontext()
    spinner = "dots" if console.encoding.startswith("utf") else "line"
    return console.status(what, spinner=spinner)
