"""``mlxfill generate``: one prompt, one reply."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer
from attrs import define

from mlxfill.cli.ask import Ask
from mlxfill.cli.decoding import Decoding
from mlxfill.cli.groups import grouped
from mlxfill.cli.invocation import invocation
from mlxfill.cli.loading import Loading

if TYPE_CHECKING:
    from rich.console import Console

    from mlxfill.engine import Engine, Result

INTERRUPTED = 130


@define
class Output:
    """What is shown, and how."""

    origins: Annotated[
        bool, typer.Option("--origins", help="Colour each token by where it came from.")
    ] = False
    logprobs: Annotated[bool, typer.Option("--logprobs", help="Log-probability of each token.")] = (
        False
    )
    top_logprobs: Annotated[
        int | None, typer.Option(metavar="N", help="The N likeliest tokens at each position.")
    ] = None
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the whole result as JSON, nothing else.")
    ] = False
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the text only.")] = False


@grouped
def generate(
    ctx: typer.Context, ask: Ask, loading: Loading, decoding: Decoding, output: Output
) -> None:
    """Answer a prompt.  Text goes to standard output, statistics to standard error."""
    prompt, tools = ask.read()
    config = invocation(ctx).config()
    decoding.check(config)

    from rich.console import Console

    from mlxfill.cli.interrupt import stoppable
    from mlxfill.cli.waiting import prefill_bar, waiting

    errors = Console(stderr=True, highlight=False, quiet=output.quiet or output.as_json)
    with waiting(errors, f"loading {loading.model_name(config)}"):
        engine = loading.engine(config)
    with engine, stoppable(engine) as stop, prefill_bar(errors) as progress:
        run = engine.stream(
            prompt,
            tools=tools,
            cancel=stop,
            on_prefill_progress=progress,
            logprobs=output.logprobs,
            top_logprobs=output.top_logprobs or 0,
            **decoding.for_engine(engine),
        )
        if not output.as_json:
            from mlxfill.cli.writer import stream_out

            stream_out(Console(), run, origins=output.origins)
        result = run.result()
        skipped = [fault for fault in engine.faults if fault not in result.faults]
        result.faults = [*skipped, *result.faults]
        if output.as_json:
            typer.echo(json.dumps(result.as_dict(), ensure_ascii=False))
        else:
            _report(errors, engine, result, origins=output.origins)
    if stop is not None and stop.is_set():
        raise typer.Exit(INTERRUPTED)


def _report(console: Console, engine: Engine, result: Result, *, origins: bool) -> None:
    """Everything that follows the text."""
    from mlxfill.cli.origins import legend
    from mlxfill.cli.report import logprobs_table, print_faults, stats_table

    if result.logprobs is not None or result.top_logprobs is not None:
        texts = [engine.tokenizer.decode([token]) for token in result.tokens]
        console.print(logprobs_table(result, texts))
    if origins:
        console.print(legend(result.origins))
    console.print(stats_table(result.stats))
    print_faults(console, result.faults)
