"""Verdicts as tables for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich import box
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from mlxfill_bench.verdict import Speed, Verdict

STYLES = {
    "faulty": "bold red",
    "worse": "bold red",
    "harmless": "green",
    "faster": "green",
    "slower": "red",
    "undecided": "yellow",
}
SHOWN_CHANGES = 3
LONGEST = 100


def show(console: Console, verdicts: Sequence[Verdict], margin: float) -> None:
    """Print the tables, the turns that were made worse, and the faults."""
    turns, plain = verdicts[0].harm.turns, verdicts[0].harm.plain_right
    harm = (
        f"Replies: plain decoding does what was recorded in {plain} of {turns} turns.  An arm is "
        f"harmless when it makes at most {margin:.1%} of these worse."
    )
    speed = "Speed: wall time of plain decoding by that of the arm, median of the sessions."
    for title, table in (
        (harm, _harm_table(verdicts)),
        (speed, _speed_table(verdicts)),
        ("Speed of each session.", _session_table(verdicts)),
    ):
        console.print(title, style="dim")
        console.print(table)
        console.print()
    for verdict in verdicts:
        _print_changes(console, verdict)
        for fault in verdict.faults:
            _print_line(console, f"{verdict.arm}: fault: {fault}", "yellow")


def _harm_table(verdicts: Sequence[Verdict]) -> Table:
    table = _table("arm", "right", "worse", "better", "p", "at most", "identical", "verdict")
    for verdict in verdicts:
        harm = verdict.harm
        table.add_row(
            _stacked(verdict.arm),
            f"{harm.right}/{harm.turns}",
            str(harm.worse),
            str(harm.better),
            f"{harm.p:.3f}",
            f"{harm.at_most:.1%}",
            f"{harm.identical}/{harm.turns}",
            _word(harm.verdict),
        )
    return table


def _speed_table(verdicts: Sequence[Verdict]) -> Table:
    names = ("speed, 95 %", "least", "per forward", "injected", "accepted", "verdict")
    table = _table("arm", *names)
    for verdict in verdicts:
        acceptance = verdict.acceptance
        table.add_row(
            _stacked(verdict.arm),
            _ratio(verdict.speed),
            f"x{min(speed.ratio for speed in verdict.by_session.values()):.2f}",
            f"{verdict.tokens_per_forward:.2f}",
            f"{verdict.injected:.0%}",
            "-" if acceptance is None else f"{acceptance:.0%}",
            _word(verdict.speed.verdict),
        )
    return table


def _session_table(verdicts: Sequence[Verdict]) -> Table:
    """A row a session, a column an arm."""
    table = _table("session", *(_stacked(verdict.arm) for verdict in verdicts))
    for session in verdicts[0].by_session:
        speeds = [verdict.by_session[session] for verdict in verdicts]
        table.add_row(escape(session), *map(_ratio, speeds))
    return table


def _table(first: str, *others: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(first, no_wrap=True)
    for name in others:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _stacked(arm: str) -> str:
    """The plugins of an arm, one below the other."""
    return escape(arm).replace("+", "\n+ ")


def _ratio(speed: Speed) -> str:
    return f"x{speed.ratio:.2f} {speed.low:.2f}-{speed.high:.2f}"


def _word(verdict: str) -> str:
    return f"[{STYLES[verdict]}]{verdict}[/]"


def _print_changes(console: Console, verdict: Verdict) -> None:
    for change in verdict.changes[:SHOWN_CHANGES]:
        where = f"{verdict.arm}: made worse: session {change.session}, turn {change.turn}"
        _print_line(console, f"{where}: {_cut(change.arm)}  instead of  {_cut(change.plain)}", "")
    left_out = len(verdict.changes) - SHOWN_CHANGES
    if left_out > 0:
        _print_line(console, f"{verdict.arm}: and {left_out} more (all in --json)", "")


def _print_line(console: Console, line: str, style: str) -> None:
    console.print(line, style=style, markup=False, soft_wrap=True)


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
