"""The command ``mlxfill tune``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer
from attrs import evolve

from mlxfill import check_output, grouped
from mlxfill_bench.options import Measuring, others_ran, tell_overrides, warn_of_load

if TYPE_CHECKING:
    from rich.console import Console

    from mlxfill_bench.settling import Change


@grouped
def tune(
    ctx: typer.Context,
    measuring: Measuring,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Write without asking.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the change, write nothing.")] = (
        False
    ),
) -> None:
    """Measure the installed plugins and write those that help into the config file.

    Without --arms every installed plugin that proposes tokens is measured, on or not.  Nothing is
    written while other programs run.
    """
    from rich.console import Console

    from mlxfill import standard_output
    from mlxfill_bench.advice import advise, as_it_is
    from mlxfill_bench.measuring import run
    from mlxfill_bench.report import show_advice, show_effects
    from mlxfill_bench.settling import settle

    config = ctx.obj.config()
    file = settle(config, as_it_is(config).settings()).path  # before hours of measuring
    if not dry_run:
        check_output("the folder of the config", file.resolve().parent, folder=True)
    console, errors = standard_output(), Console(stderr=True, highlight=False)
    every = evolve(config, plugins=evolve(config.plugins, enabled=None))
    measured = run(every, errors, measuring)
    show_effects(console, measured)
    load = max(measured.facts["load"])
    warn_of_load(errors, load)
    tell_overrides(errors, config)
    advice = advise(measured, config)
    show_advice(console, advice, lines=False)
    if advice.changes:
        change = settle(config, advice.settings())
        _show_diff(console, change)
        if not dry_run and _wanted(errors, change, yes=yes, disturbed=others_ran(load)):
            change.write()
            console.print(f"{change.path} is written.", markup=False)


def _show_diff(console: Console, change: Change) -> None:
    from rich.text import Text

    styles = {"+": "green", "-": "red", "@": "cyan"}
    for line in change.diff().splitlines():
        console.print(Text(line, styles.get(line[:1], "")), soft_wrap=True)


def _wanted(errors: Console, change: Change, *, yes: bool, disturbed: bool) -> bool:
    if disturbed:
        line = "Nothing is written: tune on a quiet machine, or write the lines with + yourself."
        errors.print(line, style="yellow", soft_wrap=True)
        return False
    if yes:
        return True
    if not sys.stdin.isatty():
        errors.print("Nothing is written: give --yes.", style="yellow")
        return False
    return typer.confirm(f"Write {change.path}?")
