"""The command ``mlxfill bench``."""

from __future__ import annotations

import json
import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import attrs
import typer

from mlxfill_bench.arms import named_arms, open_arms
from mlxfill_bench.sessions import SHIPPED, read_sessions
from mlxfill_bench.verdict import MARGIN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console

    from mlxfill import Config

app = typer.Typer()
FAILING = {"worse", "faulty"}


@app.callback()
def bench() -> None:
    """Measure plugins against plain decoding."""


@app.command()
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
    arms: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,A+B",
            help="Plugins to hold against plain decoding, those of one arm joined by +; nothing: "
            "each that is on and proposes tokens, and all of them.",
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Folder, name of a model plugin, or hub id."),
    ] = None,
    rounds: Annotated[
        int, typer.Option(min=1, metavar="N", help="How often each arm answers each turn.")
    ] = 3,
    limit: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Replay the first N sessions only.")
    ] = None,
    max_tokens: Annotated[
        int, typer.Option("--max-tokens", "-m", min=1, metavar="N", help="Most tokens of a reply.")
    ] = 512,
    cold: Annotated[
        bool, typer.Option("--cold", help="Let every reply read its whole prompt, timed.")
    ] = False,
    margin: Annotated[
        float,
        typer.Option(
            min=0, max=1, metavar="X", help="Share of turns that a harmless arm may make worse."
        ),
    ] = MARGIN,
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of the bootstrap.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, nothing else.")] = False,
) -> None:
    """Replay recorded sessions by several sets of plugins, turn by turn, and compare.

    Ends with exit code 1 when an arm does harm.
    """
    from rich.console import Console

    from mlxfill_bench.playback import replay as play
    from mlxfill_bench.report import show
    from mlxfill_bench.verdict import verdicts as judge

    config: Config = ctx.obj.config()
    names = None if arms is None else named_arms(arms)
    recorded = read_sessions(sessions or SHIPPED)[:limit]
    turns = rounds * sum(len(session.turns()) for session in recorded)
    errors = Console(stderr=True, highlight=False, quiet=as_json)
    name = model or config.model or "tiny"
    load = [os.getloadavg()[0]]
    with open_arms(name, names, config) as engines, _progress(errors, turns) as on_turn:
        played = play(
            recorded, engines, rounds=rounds, max_tokens=max_tokens, cold=cold, on_turn=on_turn
        )
    load.append(os.getloadavg()[0])
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
        show(Console(highlight=False), verdicts, margin)
        _warn_of_load(errors, max(load))
    if any(verdict.harm.verdict in FAILING for verdict in verdicts):
        raise typer.Exit(1)


def _warn_of_load(console: Console, load: float) -> None:
    """One core is this program's own."""
    cores = os.cpu_count() or 1
    if load > cores:
        console.print(
            f"other programs ran (load {load:.1f} on {cores} cores): repeat on a quiet machine "
            "before you rely on the times",
            style="yellow",
        )


@contextmanager
def _progress(console: Console, turns: int) -> Iterator[Callable[[], None]]:
    """A bar over the turns while the block runs, on a terminal."""
    if not console.is_terminal:
        yield lambda: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeRemainingColumn as Remaining

    columns = (TextColumn("replaying"), BarColumn(), MofNCompleteColumn(), Remaining())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("replaying", total=turns)
        yield lambda: bar.advance(task)
