"""The command ``mlxfill mtp``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mlxfill import DrafterError, InputError


def build() -> typer.Typer:
    """The command group."""
    app = typer.Typer(help="Prepare multi-token-prediction heads.")
    app.callback()(_group)
    app.command("split")(split)
    return app


def _group() -> None:
    """Prepare multi-token-prediction heads."""


def split(
    release: Annotated[
        Path, typer.Argument(metavar="RELEASE", help="Folder of the release that holds the head.")
    ],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="New folder for the head.")],
    block_size: Annotated[
        int | None, typer.Option(help="Tokens of a round; by default what the release says.")
    ] = None,
) -> None:
    """Cut the MTP head out of a raw release, for --draft OUT."""
    from mlxfill_spec_qwen_mtp.split import split as cut

    if block_size is not None and block_size <= 1:
        raise InputError(f"--block-size must be at least 2, not {block_size}")
    if not (release / "config.json").is_file():
        raise DrafterError(f"{release} has no config.json: is it the folder of a release?")
    count = cut(release, out, block_size)
    typer.echo(f"wrote {count} tensors to {out}; use it with --draft {out}")
