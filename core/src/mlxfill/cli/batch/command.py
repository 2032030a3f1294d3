"""``generate --batch``: the options, and what happens around the answers."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import attrs
import typer
from attrs import define

from mlxfill.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rich.console import Console

    from mlxfill.cli.batch.lines import Defaults
    from mlxfill.cli.batch.progress import Tally
    from mlxfill.cli.batch.record import Printed, Record
    from mlxfill.cli.options.ask import Ask
    from mlxfill.cli.options.loading import Loading
    from mlxfill.cli.terminal.answering import Output
    from mlxfill.config import Config
    from mlxfill.engine import Engine

FAILED, INTERRUPTED = 1, 130


@define
class Batching:
    """A file of requests in the place of one prompt."""

    batch: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Answer each line: a prompt or an object, as JSON."),
    ] = None
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="For the answers; those that are there are not redone; -: standard output.",
        ),
    ] = None
    max_rows: Annotated[
        int | None, typer.Option(metavar="N", help="Requests answered at once; 8 when left out.")
    ] = None

    def check(self) -> None:
        """Raise ``InputError`` for options that do not go together."""
        if self.batch is None:
            for name, value in (("--out", self.out), ("--max-rows", self.max_rows)):
                if value is not None:
                    raise InputError(f"{name} needs --batch FILE")
        elif self.out is None:
            raise InputError(
                f"--batch {self.batch} needs --out FILE for the answers; -: standard output"
            )
        if self.max_rows is not None and self.max_rows < 1:
            raise InputError(f"--max-rows must be 1 or more, not {self.max_rows}")


def answer_batch(  # noqa: PLR0913 - the groups of options
    batching: Batching,
    *,
    ask: Ask,
    loading: Loading,
    config: Config,
    output: Output,
    given: Mapping[str, Any],
    for_engine: Callable[[Engine], Mapping[str, Any]],
) -> None:
    """Answer all requests of ``--batch`` that ``--out`` does not answer yet.

    :param given: keywords of ``Engine.stream`` for every line.
    :param for_engine: the same, with those that depend on the tokenizer.
    :raises InputError: an option, a line or the file for the answers is wrong.
    :raises typer.Exit: 1 when a request failed, 130 after Ctrl-C.
    """
    from mlxfill.cli.batch.answers import Answers
    from mlxfill.cli.batch.lines import read_lines
    from mlxfill.cli.batch.progress import Tally, shown
    from mlxfill.cli.batch.record import opened
    from mlxfill.cli.terminal.interrupt import stoppable
    from mlxfill.cli.terminal.waiting import waiting

    _refuse(ask, output, given)
    lines = read_lines(str(batching.batch), _defaults(ask, loading, config, given))
    errors = output.errors()
    with opened(Path(batching.out or ""), lines) as record:
        left = [line for line in lines if line.index not in record.done]
        tally = Tally(len(lines), len(lines) - len(left))
        if not left:
            _say(errors, f"all {len(lines)} requests are answered in {record.name}")
            return
        with waiting(errors, f"loading {loading.model_name(config)}"):
            engine = loading.engine(config)
        with engine, stoppable(engine) as stop:
            answers = Answers(engine, record, tally, for_engine(engine))
            with waiting(errors, "checking the requests"):
                answers.check(left)
            rounds = answers.rounds(left, batching.max_rows)
            with shown(errors, tally) as show, closing(rounds):
                for _ in rounds:
                    show()
                    if stop is not None and stop.is_set():
                        break
            _report(errors, engine, tally, record)


def _refuse(ask: Ask, output: Output, given: Mapping[str, Any]) -> None:
    """Options that say nothing about many requests."""
    named = {
        "the prompt": any(p is not None for p in (ask.prompt, ask.prompt_option)),
        "--messages": ask.messages is not None,
        "--checkpoint": given["checkpoint"] is not None,
        "--origins": output.origins,
        "--json": output.as_json,
    }
    for name, said in named.items():
        if said:
            raise InputError(f"--batch answers each line of a file as JSON: leave out {name}")
    from mlxfill.model.team import launched

    if launched() is not None:
        raise InputError("--batch is answered by one process: start it without mlx.launch")


def _defaults(ask: Ask, loading: Loading, config: Config, given: Mapping[str, Any]) -> Defaults:
    from mlxfill.cli.batch.lines import Defaults
    from mlxfill.cli.options.ask import read_tools

    return Defaults(
        options=given,
        config=attrs.asdict(config.generation),
        answering=(loading.model_name(config), loading.adapter_path),
        tools=read_tools(ask.tools),
        system=ask.system,
        raw=ask.raw,
    )


def _report(errors: Console, engine: Engine, tally: Tally, record: Record | Printed) -> None:
    from mlxfill.cli.batch.record import Record
    from mlxfill.cli.terminal.report import print_faults

    print_faults(errors, engine.faults)
    _say(errors, f"{tally.summary} -> {record.name}")
    kept = isinstance(record, Record)
    if tally.done < tally.total:
        if kept:
            _say(errors, "go on with: the same command")
        raise typer.Exit(INTERRUPTED)
    if tally.failed:
        again = "; the same command tries them again" if kept else ""
        _say(errors, f'{tally.failed} failed (see "error"){again}')
        raise typer.Exit(FAILED)


def _say(errors: Console, line: str) -> None:
    errors.print(line, markup=False, soft_wrap=True)
