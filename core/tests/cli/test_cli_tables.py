"""Tables of commands: as wide as there is room, and nothing in them cut."""

from __future__ import annotations

import pytest
from rich import box
from rich.console import Console
from rich.table import Table

import mlxfill

TITLE, STYLES = "All of them", ["", "dim"]


def any_table() -> Table:
    table = Table("name", title=TITLE, box=box.ASCII, row_styles=STYLES)
    table.add_column("size", justify="right", style="bold")
    table.add_column("remark")
    table.add_row("first", "5", "much to be said", end_section=True)
    table.add_row("second", "7", "little", style="red")
    return table


@pytest.mark.parametrize(
    ("width", "left"),
    [
        (80, "name size remark"),
        (35, "name size remark"),
        (34, "name size"),
        (16, "name"),
        (3, "name"),
    ],
)
def test_columns_go_in_their_order_until_the_table_fits(width: int, left: str) -> None:
    table = any_table()
    fitting = mlxfill.fit_table(Console(width=width), table, ["remark", "size"])
    assert [column.header for column in fitting.columns] == left.split()
    assert (fitting is table) == (len(table.columns) == len(fitting.columns))


def test_what_is_left_looks_as_it_did() -> None:
    console = Console(width=17)
    expected = Table("name", title=TITLE, box=box.ASCII, row_styles=STYLES)
    expected.add_column("size", justify="right", style="bold")
    expected.add_row("first", "5", end_section=True)
    expected.add_row("second", "7", style="red")
    fitting = mlxfill.fit_table(console, any_table(), ["remark"])
    assert list(console.render(fitting)) == list(console.render(expected))
    first = Table("size", "remark")
    first.add_row("5", "much to be said")
    alone = Table("remark")
    alone.add_row("much to be said")
    fitting = mlxfill.fit_table(Console(width=20), first, ["size"])
    assert list(console.render(fitting)) == list(console.render(alone))


def test_a_pipe_has_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    console = mlxfill.standard_output()
    assert (console.is_terminal, console.width) == (False, 160)
    monkeypatch.setenv("COLUMNS", "48")
    assert mlxfill.standard_output().width == 48
