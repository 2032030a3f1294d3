"""``mlxfill resume``: a reply that was begun earlier, to its end."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from attrs import define

from mlxfill.cli.groups import grouped
from mlxfill.cli.terminal.answering import Output, answer

if TYPE_CHECKING:
    from threading import Event

    from mlxfill.decode.run import Run


@define
class Stored:
    """What is gone on with."""

    file: Annotated[Path, typer.Argument(metavar="FILE", help="What --checkpoint has saved.")]
    model: Annotated[
        str | None, typer.Option(metavar="NAME", help="Where the model is now, if it was moved.")
    ] = None
    max_tokens: Annotated[
        int | None,
        typer.Option("--max-tokens", "-m", metavar="N", help="Another limit for the whole reply."),
    ] = None


@grouped
def resume(stored: Stored, output: Output) -> None:
    """Finish a reply that --checkpoint has saved; print all of it."""
    from mlxfill.checkpoint.checkpoint import Checkpoint
    from mlxfill.cli.terminal.waiting import waiting
    from mlxfill.engine.loading import load_again

    checkpoint = Checkpoint.load(stored.file)
    origin = checkpoint.content["origin"]
    errors = output.errors()
    with waiting(errors, f"loading {stored.model or origin.get('model')}"):
        engine = load_again(origin, model=stored.model)
    given: dict[str, Any] = {"checkpoint": stored.file}
    if stored.max_tokens is not None:
        given["max_tokens"] = stored.max_tokens

    def begin(cancel: Event, on_prefill_progress: object) -> Run:  # noqa: ARG001 - no prompt is read
        return engine.resume(checkpoint, cancel=cancel, **given)

    answer(engine, output, errors, begin)
