"""Outcomes as a table for people, plain lines for pipes, JSON for machines."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

HEADINGS = ("row", "what", "mlxfill", "against", "value", "rounds", "reach", "result", "same ids")


@dataclass(frozen=True)
class Outcome:
    """One measured row.

    ``spread`` tells the lowest and the highest value of the rounds.  ``difference`` is None
    where no ids are compared, empty where all runs gave the same.  ``rounds`` keeps the raw
    rates of both sides, in tokens per second.
    """

    key: str
    what: str
    ours: str
    theirs: str
    value: float
    reach: str
    passed: bool
    spread: str = ""
    difference: str | None = None
    rounds: dict[str, list[float]] | None = None

    def cells(self) -> tuple[str, ...]:
        """Give the texts of the row, in the order of the headings."""
        same = {None: "", "": "yes"}.get(self.difference, f"no: {self.difference}")
        result = "pass" if self.passed else "MISS"
        value = f"{self.value:.3g}"
        sides = (self.key, self.what, self.ours, self.theirs)
        return (*sides, value, self.spread, self.reach, result, same)


def show(title: str, outcomes: Sequence[Outcome]) -> None:
    """Print the table: drawn on a terminal, a Markdown table into a pipe or file."""
    console = Console()
    if not console.is_terminal:
        print(f"{title}\n")
        for cells in (HEADINGS, ("---",) * len(HEADINGS), *(row.cells() for row in outcomes)):
            print(f"| {' | '.join(cells)} |")
        return
    table = Table(title=title)
    for heading in HEADINGS:
        table.add_column(heading, justify="right" if heading == "value" else "left")
    for outcome in outcomes:
        table.add_row(*outcome.cells(), style="" if outcome.passed else "red")
    console.print(table)


def save(path: Path, header: dict[str, Any], outcomes: Sequence[Outcome]) -> None:
    """Write header and outcomes as JSON."""
    content = {**header, "rows": [asdict(outcome) for outcome in outcomes]}
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def read(path: Path) -> list[Outcome]:
    """Read the outcomes back that ``save`` wrote."""
    return [Outcome(**row) for row in json.loads(path.read_text(encoding="utf-8"))["rows"]]
