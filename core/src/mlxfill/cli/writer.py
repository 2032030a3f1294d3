"""Writes a reply to standard output as it comes."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import Console

    from mlxfill.engine import Piece


def stream_out(console: Console, pieces: Iterable[Piece], *, origins: bool) -> None:
    """Write the text of ``pieces``, ended by a line break.

    :param console: knows whether standard output takes colours.
    :param origins: colour each token by its origin.
    """
    from mlxfill.cli.origins import style_of

    colours = console.color_system is not None and origins
    last = ""
    for piece in pieces:
        if not piece.text:
            continue
        last = piece.text
        sys.stdout.write(style_of(piece.origin).render(last) if colours else last)
        sys.stdout.flush()
    if not last.endswith("\n"):
        sys.stdout.write("\n")
        sys.stdout.flush()
