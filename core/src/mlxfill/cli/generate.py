"""``mlxfill generate``: one prompt, one reply."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from attrs import define

from mlxfill.cli.batch.command import Batching, answer_batch
from mlxfill.cli.groups import grouped
from mlxfill.cli.options.ask import Ask
from mlxfill.cli.options.decoding import Decoding
from mlxfill.cli.options.invocation import invocation
from mlxfill.cli.options.loading import Loading
from mlxfill.cli.terminal.answering import Output, answer
from mlxfill.errors import InputError

if TYPE_CHECKING:
    from mlxfill.decode.run import Run


@define
class Probabilities:
    """What else is told of each token."""

    logprobs: Annotated[bool, typer.Option("--logprobs", help="Log-probability of each token.")] = (
        False
    )
    top_logprobs: Annotated[
        int | None, typer.Option(metavar="N", help="The N likeliest tokens at each position.")
    ] = None

    def given(self) -> dict[str, Any]:
        """Keywords of ``Engine.stream``."""
        return {"logprobs": self.logprobs, "top_logprobs": self.top_logprobs or 0}


@define
class Saving:
    """How the reply outlives the process."""

    checkpoint: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Save the reply there as it grows: mlxfill resume FILE."),
    ] = None
    checkpoint_every: Annotated[
        int | None,
        typer.Option(metavar="N", help="Tokens between two saves; 256 when left out."),
    ] = None

    def given(self) -> dict[str, Any]:
        """Keywords of ``Engine.stream``.

        :raises InputError: there is no file to save to.
        """
        if self.checkpoint is None and self.checkpoint_every is not None:
            raise InputError("--checkpoint-every needs --checkpoint FILE")
        return {"checkpoint": self.checkpoint, "checkpoint_every": self.checkpoint_every}


@define
class Timing:
    """What is timed beyond the whole."""

    phase_times: Annotated[
        bool,
        typer.Option(
            "--phase-times",
            help="Time drafting, verifying, sampling and committing. Each phase is computed to its "
            "end: without the overlap of host and device decoding is slower.",
        ),
    ] = False


@grouped
def generate(  # noqa: PLR0913, PLR0917 - groups of options
    ctx: typer.Context,
    ask: Ask,
    loading: Loading,
    decoding: Decoding,
    probabilities: Probabilities,
    saving: Saving,
    timing: Timing,
    batching: Batching,
    output: Output,
) -> None:
    """Answer a prompt, or each line of a file.

    Text goes to standard output, statistics to standard error.
    """
    batching.check()
    given = {**probabilities.given(), **saving.given(), "phase_times": timing.phase_times}
    config = invocation(ctx).config()
    if batching.batch is not None:
        answer_batch(
            batching,
            ask=ask,
            loading=loading,
            config=config,
            output=output,
            given={**given, **decoding.given()},
            for_engine=lambda engine: {**given, **decoding.for_engine(engine)},
        )
        return
    prompt, tools = ask.read()
    decoding.check(config)

    from mlxfill.cli.terminal.waiting import waiting

    errors = output.errors()
    with waiting(errors, f"loading {loading.model_name(config)}"):
        engine = loading.engine(config)

    def begin(**more: Any) -> Run:  # noqa: ANN401
        return engine.stream(prompt, tools=tools, **given, **more, **decoding.for_engine(engine))

    answer(engine, output, errors, begin)
