"""The command ``mlxfill bench forecast``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mlxfill import InputError, MlxfillError, check_output, grouped
from mlxfill_bench.options import ArmsOption, LimitOption, progress, write

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

    from mlxfill import Engine
    from mlxfill_bench.forecast.recorded import Recorded
    from mlxfill_bench.forecast.replies import Reply
    from mlxfill_bench.forecast.running import Foreseen

STRETCHES = 5
"""How many of the longest unforeseen stretches are shown."""
SHOWN = 100
"""Characters of one of them that are shown."""


@grouped
def forecast(  # noqa: PLR0913 - the options of a command
    ctx: typer.Context,
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="Recorded sessions: OpenAI messages, logs of chat completions, .traj files, "
            "transcripts of coding agents.",
        ),
    ],
    *,
    tokenizer: Annotated[
        Path, typer.Option(metavar="FOLDER", help="A model's tokenizer; weights need not be there.")
    ],
    arms: ArmsOption = None,
    curve: Annotated[
        str,
        typer.Option(
            metavar="CURVE",
            help="What forwards cost: metal-like, free, points as 2:1.1,8:1.35, or a model to "
            "measure.",
        ),
    ] = "metal-like",
    limit: LimitOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, nothing else.")] = False,
    report: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a page with each reply coloured by origin."),
    ] = None,
) -> None:
    """Foretell, without a model, what plugins would bring.

    Without --arms every plugin that is on and proposes tokens is tried, and all of them together.
    """
    from rich.console import Console

    from mlxfill import load_tokenizer, standard_output
    from mlxfill_bench.arms import named_arms
    from mlxfill_bench.forecast.curves import curve_of
    from mlxfill_bench.forecast.page import page
    from mlxfill_bench.forecast.recorded import read_recorded
    from mlxfill_bench.forecast.running import foresee, open_forecast
    from mlxfill_bench.forecast.summary import as_dict

    if report is not None:
        check_output("--report", report)
    names = None if arms is None else named_arms(arms)
    recorded = [each for file in files for each in read_recorded(file)][:limit]
    if not (tokenizer / "tokenizer_config.json").is_file():
        raise InputError(f"--tokenizer {tokenizer}: no folder with a tokenizer_config.json")
    errors = Console(stderr=True, highlight=False, quiet=as_json)
    words = load_tokenizer(tokenizer)
    with open_forecast(words, names, ctx.obj.config(), curve_of(curve)) as (model, engines):
        replies, left_out = _replies(next(iter(engines.values())), recorded)
        with progress(errors, "foreseeing", len(replies)) as step:
            found = foresee(model, engines, replies, step)
    if as_json:
        facts = {"curve": curve, "replies": len(replies), "left_out": left_out}
        typer.echo(json.dumps({**facts, **as_dict(found)}, ensure_ascii=False))
    else:
        _show(standard_output(), found, words)
        for reason in left_out:
            errors.print(f"left out: {reason}", style="yellow", markup=False, soft_wrap=True)
    if report is not None:
        write(errors, "--report", report, page(found, words, files, curve))


def _replies(engine: Engine, recorded: Sequence[Recorded]) -> tuple[list[Reply], list[str]]:
    """The replies as tokens, and why some are left out."""
    from mlxfill_bench.forecast.replies import reply_of
    from mlxfill_bench.sessions import name_of

    replies, left_out = [], []
    for each in recorded:
        for turn in each.turns:
            try:
                reply = reply_of(engine, each.session, turn)
            except MlxfillError as error:
                left_out.append(f"{name_of(each.session.id, turn.number)}: {error}")
            else:
                replies += [reply] if reply else []
    if not replies:
        raise InputError(left_out[0] if left_out else "no reply in these files says anything")
    return replies, left_out


def _show(console: Console, found: Mapping[str, Sequence[Foreseen]], tokenizer: Any) -> None:  # noqa: ANN401
    from rich.table import Table

    from mlxfill import fit_table
    from mlxfill_bench.forecast.summary import shares, unforeseen

    table = Table(box=None)
    for name in ("plugins", "tokens of", "tokens", "per forward", "speed", "injected", "accepted"):
        table.add_column(name, justify="left" if name in {"plugins", "tokens of"} else "right")
    for share in shares(found):
        table.add_row(
            share.arm,
            share.kind,
            str(share.tokens),
            f"{share.tokens_per_forward:.2f}",
            f"{share.speed:.2f}",
            f"{share.injected:.0%}",
            f"{share.accepted:.0%}",
        )
    console.print(fit_table(console, table, ["tokens", "injected"]))
    for arm, replies in found.items():
        strayed = sum(each.strayed for each in replies)
        if strayed:
            what = "tokens follow an asserted one that was not recorded; each counts as a forward"
            console.print(f"{arm}: {strayed} {what}", markup=False)
    arm, replies = list(found.items())[-1]
    console.print(f"\nLongest stretches that {arm} did not foresee:", markup=False)
    for stretch in unforeseen(replies, STRETCHES):
        text = tokenizer.decode(list(stretch.ids)).replace("\n", "\\n")[:SHOWN]
        console.print(
            f"  {len(stretch.ids)} tokens from {stretch.start} in {stretch.name}: {text}",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
