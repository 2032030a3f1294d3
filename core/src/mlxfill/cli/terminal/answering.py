"""Showing one reply: what ``generate`` and ``resume`` have in common."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer
from attrs import define

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from mlxfill.decode.run import Run
    from mlxfill.engine import Engine, Result

INTERRUPTED = 130


@define
class Output:
    """What is shown, and how."""

    origins: Annotated[
        bool, typer.Option("--origins", help="Colour each token by where it came from.")
    ] = False
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the whole result as JSON, nothing else.")
    ] = False
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the text only.")] = False

    def errors(self) -> Console:
        """Where everything goes that is not the reply."""
        from rich.console import Console

        return Console(stderr=True, highlight=False, quiet=self.quiet or self.as_json)


def answer(engine: Engine, output: Output, errors: Console, begin: Callable[..., Run]) -> None:
    """Let the engine answer, show the reply as it comes, and close the engine.

    :param begin: the request, called with ``cancel`` and ``on_prefill_progress``.
    :raises CheckpointError: all is shown, but the reply could not be kept.
    :raises typer.Exit: 130 after Ctrl-C.
    """
    from mlxfill.cli.terminal.interrupt import stoppable
    from mlxfill.cli.terminal.waiting import prefill_bar
    from mlxfill.errors import CheckpointError
    from mlxfill.plugins.faults import is_not_kept

    with engine, stoppable(engine) as stop, prefill_bar(errors) as progress:
        run = begin(cancel=stop, on_prefill_progress=progress)
        if not output.as_json:
            from rich.console import Console

            from mlxfill.cli.terminal.writer import stream_out, thoughts

            stream_out(Console(), run, thoughts(run.request), origins=output.origins)
        result = run.result()
        skipped = [fault for fault in engine.faults if fault not in result.faults]
        result.faults = [*skipped, *result.faults]
        if output.as_json:
            typer.echo(json.dumps(result.as_dict(), ensure_ascii=False))
        else:
            drawn = not run.request.sampling.greedy
            _report(errors, engine, result, origins=output.origins, drawn=drawn)
        for fault in result.faults:
            if is_not_kept(fault):
                raise CheckpointError(fault.message)
        if stop is None or not stop.is_set():
            return
        file = run.options.checkpoint
        if file is not None:
            errors.print(f"go on with: mlxfill resume {file}", markup=False, soft_wrap=True)
    raise typer.Exit(INTERRUPTED)


def _report(
    console: Console, engine: Engine, result: Result, *, origins: bool, drawn: bool
) -> None:
    """Everything that follows the text."""
    from mlxfill.cli.terminal.origins import legend
    from mlxfill.cli.terminal.report import (
        logprobs_table,
        print_cut,
        print_faults,
        print_left_out,
        print_stats,
    )
    from mlxfill.plugins.faults import is_not_kept

    if result.logprobs is not None or result.top_logprobs is not None:
        texts = [engine.tokenizer.decode([token]) for token in result.tokens]
        console.print(logprobs_table(result, texts))
    if origins:
        console.print(legend(result.origins))
    if result.tokens:
        print_stats(console, result.stats, drawn=drawn)
    print_left_out(console, result.stats, engine)
    print_cut(console, result)
    # A checkpoint that is not there is this command's own error.
    print_faults(console, [fault for fault in result.faults if not is_not_kept(fault)])
