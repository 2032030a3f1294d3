"""What a request cost, as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlxfill.cli.terminal.tables import bare_table, fit_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import Console
    from rich.table import Table

    from mlxfill.contracts import Fault
    from mlxfill.engine import Engine, Result
    from mlxfill.request.results import Stats

TYPICAL = 8
"""Tokens of the window by which a machine is described."""


def print_stats(console: Console, stats: Stats, *, drawn: bool) -> None:
    """The table of ``stats_table``, as much of it as fits."""
    least = ("prefill", "prompt", "forwards", "accepted")
    console.print(fit_table(console, stats_table(stats, drawn=drawn), least))


def stats_table(stats: Stats, *, drawn: bool) -> Table:
    """One row: tokens and speed, forwards and what they brought, the prompt.

    :param drawn: tokens were drawn at random, so that the seed is of interest.
    """
    cells = {
        "tokens": str(stats.generated_tokens),
        "tokens/s": f"{stats.decode_tps:.1f}",
        "forwards": str(stats.target_forwards),
        "per forward": f"{stats.tokens_per_forward:.2f}",
        "accepted": _accepted(stats),
        "prompt": _prompt(stats),
        "prefill": f"{stats.prefill_ms / 1e3:.2f} s",
    }
    notes = [*([f"seed {stats.seed}"] if drawn else []), *_phases(stats)]
    table = bare_table(caption="\n".join(notes) or None, caption_justify="left")
    for name in cells:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_row(*cells.values())
    return table


def _accepted(stats: Stats) -> str:
    """Verified drafts and asserted tokens: ``27/28 + 12 filled``."""
    drafted, filled = stats.spec.get("drafted", 0), stats.fill.get("injected", 0)
    parts = [f"{stats.spec['accepted']}/{drafted}"] if drafted else []
    return " + ".join([*parts, *([f"{filled} filled"] if filled else [])]) or "-"


def _phases(stats: Stats) -> list[str]:
    """A line of the milliseconds in each phase of windows, if they were timed."""
    times = stats.spec.get("phase_ms")
    if not times:
        return []
    parts = [f"{name} {ms:.1f}" for name, ms in times.items()]
    return [f"ms: {', '.join(parts)}"]


def _prompt(stats: Stats) -> str:
    cached = f" ({stats.cached_tokens} cached)" if stats.cached_tokens else ""
    return f"{stats.prompt_tokens}{cached}"


def print_cut(console: Console, result: Result) -> None:
    """A line when the reply ends where its limit is and not where the model wanted."""
    if result.finish_reason == "length":
        line = f"stopped at max_tokens {result.stats.generated_tokens}: -m N allows more"
        console.print(line, style="dim", soft_wrap=True)


def print_left_out(console: Console, stats: Stats, engine: Engine | None) -> None:
    """A line that says why nothing came of offers, if the gate left some out.

    :param engine: the one that answered; None: it is elsewhere.
    """
    left_out = stats.spec.get("left_out", 0)
    if not left_out:
        return
    line = f"the gate left out {left_out} of {stats.spec['offers']} offers, "
    if engine is not None and not engine.learnt.knows_costs:
        console.print(f"{line}the reply being short", style="dim", soft_wrap=True)
        return
    line += "which promised less than a window costs"
    if engine is not None:
        cost = engine.forward_cost(TYPICAL)
        line += f" here ({cost:.1f} steps for {TYPICAL} tokens); mlxfill doctor says more"
    console.print(line, style="dim", soft_wrap=True)


def print_faults(console: Console, faults: Iterable[Fault]) -> None:
    """A line for each plugin that was set aside, and for what else the user should know."""
    for fault in faults:
        console.print(fault.line, style="yellow", markup=False, soft_wrap=True)


def logprobs_table(result: Result, tokens: list[str]) -> Table:
    """A row a token: its log-probability, and the likeliest tokens there.

    :param tokens: the text of each token of ``result``.
    """
    table = bare_table()
    table.add_column("token")
    table.add_column("id", justify="right")
    table.add_column("log-probability", justify="right")
    table.add_column("likeliest")
    alternatives = result.top_logprobs or [[]] * len(tokens)
    values: Sequence[float | None] = result.logprobs or [None] * len(tokens)
    for text, token, value, best in zip(tokens, result.tokens, values, alternatives, strict=True):
        shown = "  ".join(f"{i} {p:.2f}" for i, p in best)
        table.add_row(repr(text), str(token), "" if value is None else f"{value:.3f}", shown)
    return table
