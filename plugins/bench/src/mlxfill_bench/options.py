"""Options that the commands of this plugin share, and the bar that shows how far they are."""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from attrs import define

from mlxfill import InputError, check_output

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rich.console import Console

    from mlxfill import Config
    from mlxfill_bench.advice import Advice
    from mlxfill_bench.measuring import Measurement
    from mlxfill_bench.verdict import Verdict

VARIABLES = "MLXFILL_"
"""What the names of variables that override the config begin with."""
ALWAYS = 0.5
"""Threads of what runs on any machine."""

ArmsOption = Annotated[
    str | None,
    typer.Option(
        metavar="A,B,A+B",
        help="Plugins to hold against plain decoding, those of one arm joined by +, and drafters "
        "as draft=FOLDER; nothing: each that proposes tokens, and all of them.",
    ),
]
ModelOption = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Folder, name of a model plugin, or hub id."),
]
RoundsOption = Annotated[
    int, typer.Option(min=1, metavar="N", help="How often each arm gives each answer.")
]
MaxTokensOption = Annotated[
    int, typer.Option("--max-tokens", "-m", min=1, metavar="N", help="Most tokens of an answer.")
]
SeedOption = Annotated[
    int, typer.Option(min=0, metavar="N", help="Seed of the bootstrap, and of what is drawn.")
]
ColdOption = Annotated[
    bool, typer.Option("--cold", help="Let every answer read its whole prompt, timed.")
]
LimitOption = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Ask the first N prompts or sessions only.")
]


@define
class Measuring:
    """What is measured, and how: the options of ``bench`` and of ``tune``."""

    model: ModelOption = None
    prompts: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Prompts: a text file, one a line or between lines ---, or .jsonl with texts, "
            "messages or objects; nothing: samples that come along.",
        ),
    ] = None
    arms: ArmsOption = None
    rounds: RoundsOption = 5
    limit: LimitOption = None
    max_tokens: MaxTokensOption = 128
    raw: Annotated[
        bool, typer.Option("--raw", help="Continue texts as they are, without chat template.")
    ] = False
    temperature: Annotated[
        float,
        typer.Option(
            "--temp",
            "--temperature",
            min=0,
            metavar="X",
            help="0: always the likeliest token; else drawn with --seed.",
        ),
    ] = 0.0
    cold: ColdOption = False
    slack: Annotated[
        float,
        typer.Option(
            min=0,
            max=1,
            metavar="X",
            help="An arm slower by this share at most counts as harmless.",
        ),
    ] = 0.03
    seed: SeedOption = 0


@define
class Pages:
    """What is written beside the tables."""

    report: Annotated[
        Path | None,
        typer.Option("--report", metavar="FILE", help="Write a page with plots and all answers."),
    ] = None
    png: Annotated[
        Path | None,
        typer.Option("--png", metavar="FOLDER", help="Write the plots as pictures for a paper."),
    ] = None

    @property
    def wanted(self) -> bool:
        """Whether there is any."""
        return self.report is not None or self.png is not None

    def check(self) -> None:
        """Raise ``InputError`` where nothing could be written after all the work."""
        if self.report is not None:
            check_output("--report", self.report)
        if self.png is not None:
            check_output("--png", self.png, folder=True)

    def write(
        self,
        console: Console,
        measured: Measurement,
        advice: Advice,
        verdicts: Sequence[Verdict] = (),
    ) -> None:
        """Write what was asked for.  Raises ``InputError``."""
        if self.report is not None:
            from mlxfill_bench.page import page

            write(console, "--report", self.report, page(measured, advice, verdicts))
        if self.png is not None:
            from mlxfill_bench.charts import save_pictures

            save_pictures(self.png, measured)
            console.print(
                f"The plots are in {self.png}.", style="dim", markup=False, soft_wrap=True
            )


@contextmanager
def progress(console: Console, what: str, steps: int) -> Iterator[Callable[[], None]]:
    """A bar while the block runs, on a terminal; what it yields is called after each step."""
    if not console.is_terminal:
        yield lambda: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeRemainingColumn as Remaining

    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), Remaining())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(what, total=steps)
        yield lambda: bar.advance(task)


def warn_of_load(console: Console, load: float) -> None:
    """Say that times are not to be relied on, if so."""
    if others_ran(load):
        console.print(
            f"other programs ran (load {load:.1f} on {os.cpu_count()} cores): repeat on a quiet "
            "machine before you rely on the times",
            style="yellow",
        )


def others_ran(load: float) -> bool:
    """Whether other programs disturbed the times: more ran than this one, which may use each core.

    :param load: threads that ran or waited to, on average over a minute.
    """
    return load > (os.cpu_count() or 1) + ALWAYS


def tell_overrides(console: Console, config: Config) -> None:
    """Say which settings hold for what was measured without standing in the config file."""
    for key, place in config.sources.items():
        if place.startswith(VARIABLES) and key != "model":  # the model is named anyway
            line = f"measured with {key} of ${place}: without it this may come out otherwise"
            console.print(line, style="yellow", markup=False, soft_wrap=True)


def write(console: Console, option: str, file: Path, text: str) -> None:
    """Write a result and say so.  Raises ``InputError``."""
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{option} {file}: {error.strerror or error}") from error
    console.print(f"{file} is written.", style="dim", markup=False, soft_wrap=True)
