"""The command ``mlxfill bench replay``."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import attrs
import typer

from mlxfill import grouped
from mlxfill_bench.options import (
    ArmsOption,
    ColdOption,
    LimitOption,
    MaxTokensOption,
    ModelOption,
    Pages,
    RoundsOption,
    SeedOption,
    progress,
    tell_overrides,
    warn_of_load,
)
from mlxfill_bench.sessions import SHIPPED, read_sessions
from mlxfill_bench.verdict import MARGIN

if TYPE_CHECKING:
    from mlxfill import Config

FAILING = {"worse", "faulty"}


@grouped
def replay(  # noqa: PLR0913, PLR0917 - the options of a command
    ctx: typer.Context,
    sessions: Annotated[
        Path | None,
        typer.Argument(
            metavar="SESSIONS",
            show_default=False,
            help="Recorded sessions, a JSON object a line; nothing: synthetic ones for the model "
            "tiny.",
        ),
    ] = None,
    arms: ArmsOption = None,
    model: ModelOption = None,
    rounds: RoundsOption = 3,
    limit: LimitOption = None,
    max_tokens: MaxTokensOption = 512,
    cold: ColdOption = False,
    margin: Annotated[
        float,
        typer.Option(
            min=0, max=1, metavar="X", help="Share of turns that a harmless arm may make worse."
        ),
    ] = MARGIN,
    seed: SeedOption = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, nothing else.")] = False,
    *,
    pages: Pages,
) -> None:
    """Replay recorded sessions by several sets of plugins; compare.

    Without --arms every plugin that is on and proposes tokens is compared.
    Ends with exit code 1 when an arm does harm.
    """
    from rich.console import Console

    from mlxfill import standard_output
    from mlxfill_bench.advice import advise
    from mlxfill_bench.arms import named_arms, open_arms
    from mlxfill_bench.measuring import Plan, watched
    from mlxfill_bench.playback import replay as play
    from mlxfill_bench.report import show
    from mlxfill_bench.verdict import verdicts as judge

    config: Config = ctx.obj.config()
    names = None if arms is None else named_arms(arms)
    pages.check()
    recorded = read_sessions(sessions or SHIPPED)[:limit]
    errors = Console(stderr=True, highlight=False, quiet=as_json)
    name = model or config.model or "tiny"
    load = [os.getloadavg()[0]]
    plan = Plan(
        model=name,
        prompts=recorded,
        arms=names,
        rounds=rounds,
        max_tokens=max_tokens,
        cold=cold,
        seed=seed,
    )
    once_more = pages.wanted
    steps = (rounds + once_more) * plan.turns
    with open_arms(name, names, config) as engines, progress(errors, "replaying", steps) as step:
        played = play(recorded, engines, rounds=rounds, **plan.asking(step))
        load.append(os.getloadavg()[0])
        measured = watched(plan, engines, played, load, step) if once_more else None
    verdicts = judge(played, margin=margin, seed=seed)
    if as_json:
        facts = {
            "model": name,
            "sessions": str(sessions or SHIPPED.name),
            "rounds": rounds,
            "cold": cold,
            "margin": margin,
            "seed": seed,
            "cores": os.cpu_count(),
            "load": [round(each, 2) for each in load],
        }
        arms_json = [attrs.asdict(verdict) for verdict in verdicts]
        typer.echo(json.dumps({**facts, "arms": arms_json}, ensure_ascii=False))
    else:
        show(standard_output(), verdicts, margin)
        warn_of_load(errors, max(load))
        tell_overrides(errors, config)
    if measured is not None:
        pages.write(errors, measured, advise(measured, config), verdicts)
    if any(verdict.harm.verdict in FAILING for verdict in verdicts):
        raise typer.Exit(1)
