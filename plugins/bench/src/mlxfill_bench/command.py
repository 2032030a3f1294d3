"""The command ``mlxfill bench``: the user's own prompts, ``replay`` and ``forecast`` beside it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mlxfill import InputError, check_output, grouped
from mlxfill_bench.forecast.command import forecast
from mlxfill_bench.options import Measuring, Pages, tell_overrides, warn_of_load, write
from mlxfill_bench.replaying import replay

if TYPE_CHECKING:
    from mlxfill_bench.advice import Advice
    from mlxfill_bench.measuring import Measurement

app = typer.Typer()
app.command()(replay)
app.command()(forecast)
STDOUT = Path("-")


@app.callback(invoke_without_command=True)
@grouped
def bench(
    ctx: typer.Context,
    measuring: Measuring,
    as_json: Annotated[
        Path | None,
        typer.Option("--json", metavar="FILE", help="Write all figures; -: print them only."),
    ] = None,
    *,
    pages: Pages,
) -> None:
    """Hold plugins against plain decoding, on your own prompts: is any of them ever slower?

    Without --arms every plugin that is on and proposes tokens is measured.
    Ends with exit code 1 when a plugin failed, or changed a text without asserting tokens.
    """
    if ctx.invoked_subcommand is not None:
        _no_options(ctx)
        return
    from rich.console import Console

    from mlxfill import standard_output
    from mlxfill_bench.advice import advise
    from mlxfill_bench.measuring import run
    from mlxfill_bench.report import show_advice, show_effects

    config = ctx.obj.config()
    to_stdout = as_json == STDOUT
    if as_json is not None and not to_stdout:
        check_output("--json", as_json)
    pages.check()
    errors = Console(stderr=True, highlight=False, quiet=to_stdout)
    measured = run(config, errors, measuring)
    advice = advise(measured, config)
    if to_stdout:
        typer.echo(_as_json(measured, advice))
    else:
        console = standard_output()
        show_effects(console, measured)
        warn_of_load(errors, max(measured.facts["load"]))
        tell_overrides(errors, config)
        show_advice(console, advice, lines=True)
    if as_json is not None and not to_stdout:
        write(errors, "--json", as_json, _as_json(measured, advice) + "\n")
    pages.write(errors, measured, advice)
    if any(effect.verdict == "faulty" or not effect.lossless for effect in measured.effects):
        raise typer.Exit(1)


def _no_options(ctx: typer.Context) -> None:
    """Options before ``replay`` would have no effect."""
    given = [
        parameter.opts[0]
        for parameter in ctx.command.params
        if ctx.params.get(parameter.name or "") != parameter.get_default(ctx)
    ]
    if given:
        raise InputError(f"{given[0]} stands before {ctx.invoked_subcommand}: put it behind")


def _as_json(measured: Measurement, advice: Advice) -> str:
    arm = advice.effect.arm if advice.effect else None
    told = {"arm": arm, "enabled": advice.enabled, "draft": advice.draft}
    return json.dumps({**measured.as_dict(), "advice": told}, ensure_ascii=False)
