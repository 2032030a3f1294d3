"""Writes a reply to standard output as it comes."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rich.console import Console

    from mlxfill.contracts import Request
    from mlxfill.engine import Piece

    Thinks = Callable[[str], bool]


def stream_out(console: Console, pieces: Iterable[Piece], thinks: Thinks, *, origins: bool) -> None:
    """Write the text of ``pieces``, ended by a line break; on a terminal reasoning is dim.

    :param console: knows whether standard output takes colours.
    :param thinks: told each text in turn, whether it is reasoning.
    :param origins: colour each token by its origin.
    """
    from rich.style import Style

    from mlxfill.cli.terminal.origins import style_of

    styled = console.color_system is not None and not console.no_color
    last = ""
    for piece in pieces:
        if not piece.text:
            continue
        shown = last = piece.text
        if styled:
            style = style_of(piece.origin) if origins else Style.null()
            shown = (style + Style(dim=thinks(last) or None)).render(last)
        sys.stdout.write(shown)
        sys.stdout.flush()
    if not last.endswith("\n"):
        sys.stdout.write("\n")
        sys.stdout.flush()


def thoughts(request: Request) -> Thinks:
    """Told the texts of a reply in turn: whether each is reasoning, or a marker around it."""
    from mlxfill.tool_calls.sections import REASONING, ReplySections, end_of_prompt

    asked = end_of_prompt(request.tokenizer, request.prompt_ids, request.prompt_text)
    sections = ReplySections(request.tokenizer, asked, tools=bool(request.tools))

    def thinks(text: str) -> bool:
        before = sections.now
        sections.feed(text)
        return REASONING in {before, sections.now}

    return thinks
