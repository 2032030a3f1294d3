"""Tables on standard output: what they look like, and how much of one there is room for."""

from __future__ import annotations

import os
import sys
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOM = 160
"""Columns of a file or a pipe, where nobody says how many there are."""


def standard_output() -> Console:
    """Where tables go: as wide as the terminal, or as ``$COLUMNS`` says, else wide enough."""
    console = Console(highlight=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = ROOM
    return console


def bare_table(**options: Any) -> Table:  # noqa: ANN401 - options of rich's Table
    """A table with a line under its head and no frame."""
    return Table(
        box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), **options
    )


def fit_table(console: Console, table: Table, least: Iterable[str]) -> Table:
    """Take columns out of a table until nothing in it is cut.

    :param console: where it is to be printed.
    :param least: headings of columns that may go, the least needed first.
    :returns: ``table`` itself where it fits, else another one, which may still be too wide.
    """
    unbounded = console.options.update(max_width=sys.maxsize)
    for name in least:
        if console.measure(table, options=unbounded).maximum <= console.width:
            break
        table = _without(name, table)
    return table


def _without(name: str, table: Table) -> Table:
    """The same table with a column less."""
    kept = (column for column in table.columns if column.header != name)
    narrower = copy(table)
    narrower.columns = [replace(column, _index=place) for place, column in enumerate(kept)]
    return narrower
