"""The command ``mlxfill plugins new``."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer


class Kind(StrEnum):
    """What a plugin can begin as."""

    SOURCE = "source"
    DRAFTER = "drafter"


def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Lower-case words joined by '-'.")],
    kind: Annotated[
        Kind, typer.Option(help="A proposal source, or a drafter with rows of its own.")
    ] = Kind.SOURCE,
) -> None:
    """Write a new plugin, with its tests, into mlxfill-NAME."""
    from pathlib import Path

    from mlxfill_testing.new.writing import check_name, write

    check_name(name)
    folder = Path(f"mlxfill-{name}")
    files = write(folder, name, kind.value)
    typer.echo(f"wrote {folder} ({len(files)} files); it begins in {files[-1]}")
    typer.echo(f"next: pip install -e './{folder}[test]' && pytest {folder}")
