"""Which colour tokens have by their origin, on a terminal and in pictures."""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from rich.style import Style
from rich.text import Text

from mlxfill.request.results import SAMPLED

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_COLOURS = {
    SAMPLED: "default",
    "ngram": "green",
    "echo": "cyan",
    "draft": "yellow",
    "mtp": "magenta",
    "template": "blue",
    "schema": "bright_blue",
    "grammar": "red",
}
_OTHER = "bright_magenta"


def style_of(origin: str) -> Style:
    """The style of one token.  One of the terminal's own colours, legible on its own background."""
    plain = origin == SAMPLED
    return Style(
        color=None if plain else _COLOURS.get(origin, _OTHER), bold=None if plain else True
    )


def painted(pieces: Iterable[tuple[str, str]]) -> Text:
    """(text, origin) pairs as one coloured text, a run of one origin in one piece."""
    text = Text()
    for origin, run in groupby(pieces, key=itemgetter(1)):
        text.append("".join(segment for segment, _ in run), style_of(origin))
    return text


def legend(origins: Sequence[str]) -> Text:
    """The origins that occur, each in its colour, with its number of tokens."""
    counts = Counter(origins)
    order = sorted(counts, key=lambda origin: (origin != SAMPLED, -counts[origin]))
    entries = [Text(f"{origin} {counts[origin]}", style_of(origin)) for origin in order]
    return Text.assemble(("origins: ", "dim"), Text("  ").join(entries))
