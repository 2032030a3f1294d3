"""Verdicts as tables for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich import box
from rich.markup import escape
from rich.table import Table

from mlxfill import fit_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import Console

    from mlxfill_bench.advice import Advice
    from mlxfill_bench.effect import Effect
    from mlxfill_bench.figures import Figures, Speed
    from mlxfill_bench.measuring import Measurement
    from mlxfill_bench.verdict import Verdict

STYLES = {
    "faulty": "bold red",
    "worse": "bold red",
    "harmless": "green",
    "faster": "green",
    "slower": "red",
    "undecided": "yellow",
    "idle": "dim",
    "helps": "bold green",
    "harms": "bold red",
}
HARM_LEAST = ("identical", "p", "at most", "better")
SPEED_LEAST = ("injected", "accepted", "per forward", "least")
EFFECT_LEAST = ("injected", "accepted", "same", "/forward", "expected")
"""Columns that a narrow terminal does without, in this order."""

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
        (harm, fit_table(console, _harm_table(verdicts), HARM_LEAST)),
        (speed, fit_table(console, _speed_table(verdicts), SPEED_LEAST)),
        ("Speed of each session.", _session_table(console, verdicts)),
    ):
        console.print(title, style="dim")
        console.print(table)
        console.print()
    for verdict in verdicts:
        _print_changes(console, verdict)
        _print_notes(console, verdict.arm, verdict.figures)
    _print_notes_of_all(console, [verdict.figures for verdict in verdicts])


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
        table.add_row(
            _stacked(verdict.arm),
            _ratio(verdict.speed),
            f"x{min(speed.ratio for speed in verdict.by_session.values()):.2f}",
            *_cells(verdict.figures),
            _word(verdict.speed.verdict),
        )
    return table


def _cells(figures: Figures) -> list[str]:
    acceptance = figures.acceptance
    return [
        f"{figures.tokens_per_forward:.2f}",
        f"{figures.injected:.0%}",
        "-" if acceptance is None else f"{acceptance:.0%}",
    ]


def _session_table(console: Console, verdicts: Sequence[Verdict]) -> Table:
    """A row a session, a column an arm; where these do not fit, a row for each of both."""
    table = _table("session", *(_stacked(verdict.arm) for verdict in verdicts))
    for session in verdicts[0].by_session:
        speeds = [verdict.by_session[session] for verdict in verdicts]
        table.add_row(escape(session), *map(_ratio, speeds))
    if fit_table(console, table, ["session"]) is table:
        return table
    table = _table("session", "arm", "speed, 95 %")
    for session in verdicts[0].by_session:
        for verdict in verdicts:
            cells = (session, verdict.arm, _ratio(verdict.by_session[session]))
            table.add_row(*map(escape, cells))
    return table


def show_effects(console: Console, measured: Measurement) -> None:
    """Print a row an arm, which answers differ, and the faults."""
    facts = measured.facts
    how = "greedy" if not facts["temperature"] else f"temperature {facts['temperature']:g}"
    console.print(
        f"Model {facts['model']}, {_count(facts['prompts'], 'prompt')}, "
        f"{_count(facts['rounds'], 'round')}, {how}, at most {facts['max_tokens']} tokens.  "
        f"An arm is harmless when it is at most {facts['slack']:.0%} slower.",
        style="dim",
        markup=False,
    )
    console.print(fit_table(console, _effect_table(measured), EFFECT_LEAST))
    console.print()
    for effect in measured.effects:
        if effect.differing:
            _print_line(console, f"{effect.arm}: {_difference(effect)}", "yellow")
        _print_notes(console, effect.arm, effect.figures)
    _print_notes_of_all(console, [effect.figures for effect in measured.effects])
    if measured.left_out:
        names = ", ".join(measured.left_out)
        why = "; ".join(dict.fromkeys(measured.left_out.values()))
        _print_line(console, f"samples left out: {names} ({why})", "dim")


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _effect_table(measured: Measurement) -> Table:
    names = ("speed, 95 %", "expected", "/forward", "injected", "accepted", "same", "verdict")
    table = _table("arm", *names)
    for effect in measured.effects:
        table.add_row(
            _stacked(effect.arm),
            _ratio(effect.speed),
            "-" if effect.expected is None else f"x{effect.expected:.2f}",
            *_cells(effect.figures),
            f"{effect.identical}/{effect.prompts}",
            _word(effect.verdict),
        )
    return table


def _difference(effect: Effect) -> str:
    shown = ", ".join(effect.differing[:SHOWN_CHANGES])
    more = ", ..." if len(effect.differing) > SHOWN_CHANGES else ""
    cause = "asserted tokens may do that" if effect.lossless else "see mlxfill audit"
    return f"other tokens than plain decoding: {shown}{more} ({cause})"


def show_advice(console: Console, advice: Advice, *, lines: bool) -> None:
    """Print which arm helps most, and with ``lines`` what to write into the config file."""
    if advice.effect is None:
        console.print("No arm surely helps for these prompts.")
        for line in advice.unproven:
            _print_line(console, f"- {line}", "")
    else:
        _print_line(console, f"{advice.effect.arm} helps most: {_ratio(advice.effect.speed)}.", "")
    if not advice.changes:
        console.print(advice.no_change)
    elif lines:
        console.print(f"The config file should say:\n\n[bold]{escape(advice.lines())}[/]\n")
        console.print("mlxfill tune measures the installed plugins and writes it.", style="dim")


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


def _print_notes(console: Console, arm: str, figures: Figures) -> None:
    """What the figures in a table do not explain."""
    if figures.gate_line:
        _print_line(console, f"{arm}: {figures.gate_line}", "dim")
    for fault in figures.faults:
        _print_line(console, f"{arm}: {fault}", "yellow")


def _print_notes_of_all(console: Console, every: Iterable[Figures]) -> None:
    """What the engine said of the requests, once for all arms."""
    for note in dict.fromkeys(note for figures in every for note in figures.notes):
        _print_line(console, note, "dim")


def _print_line(console: Console, line: str, style: str) -> None:
    console.print(line, style=style, markup=False, soft_wrap=True)


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
