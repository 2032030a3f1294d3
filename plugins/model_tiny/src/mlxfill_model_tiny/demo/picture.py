"""How the demo looks."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from attrs import frozen
from rich import box
from rich.console import Group
from rich.segment import Segment
from rich.style import Style
from rich.table import Table
from rich.text import Text

from mlxfill import PluginError, installed_plugin, painted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rich.console import Console, ConsoleOptions, RenderableType

    from mlxfill import Engine, Result
    from mlxfill_model_tiny.demo.race import Outcome

SAMPLED = "sampled"
"""The origin of what the model wrote alone."""
ALWAYS = 0.5
"""Threads of what runs on any machine."""
FORWARDS = (
    "Forwards: counted with the cost gate off; with these plugins they are the same on every"
    " machine."
)
CONFIRMED = "proposed, and confirmed by the model"
INJECTED = "injected, fixed by the template and the tools"
TIMES = (
    "Time: the shortest of several runs a side, which take turns; with the gate, as by default: a"
    " window that does not pay here is left out.  Speed: one time by the other."
)
BUSY = "Other programs ran meanwhile ({load}), so the times say little."
NO_SOURCES = "No plugin that proposes tokens is on, so both sides are the same: "


def heading(engine: Engine) -> Text:
    """What runs."""
    plugins = ", ".join(engine.plugins.names) or "none"
    return Text.assemble(("mlxfill demo", "bold"), ("   model tiny   plugins: ", "dim"), plugins)


def block(engine: Engine, outcome: Outcome) -> RenderableType:
    """One ask: what was said, then both replies side by side, each under a bar of its forwards."""
    plain, counted = outcome.plain, outcome.counted
    longest = max(plain.stats.target_forwards, counted.stats.target_forwards, 1)
    sides = Table.grid(expand=True)
    sides.add_column(ratio=1)
    sides.add_column(width=3)
    sides.add_column(ratio=1)
    sides.add_row(Text("plain", "bold"), "", Text("mlxfill", "bold green"))
    sides.add_row(_cost(plain), "", _cost(counted))
    sides.add_row(_bar(plain, longest, "bright_black"), "", _bar(counted, longest, "green"))
    sides.add_row("", "", "")
    sides.add_row(Text(plain.text.strip("\n")), "", _coloured(engine, counted))
    return Group(_question(outcome), "", sides, "")


def _question(outcome: Outcome) -> Text:
    lines = outcome.ask.returned_lines
    then = f"  (a tool returned {lines} lines)" if lines else ""
    title = (outcome.ask.title, "bold underline")
    return Text.assemble(title, "   ", outcome.ask.question, (then, "dim"))


def _cost(result: Result) -> Text:
    stats = result.stats
    return Text(f"{stats.generated_tokens} tokens in {stats.target_forwards} forwards", "dim")


def _bar(result: Result, longest: int, colour: str) -> RenderableType:
    """Forwards, in parts of the longest row of forwards."""
    return Bar(result.stats.target_forwards / longest, colour)


def _coloured(engine: Engine, result: Result) -> Text:
    """The reply, each token in the colour of its origin."""
    stream = engine.tokenizer.detokenizer
    pieces = []
    for token, origin in zip(result.tokens, result.origins, strict=True):
        stream.add_token(token)
        pieces.append((stream.last_segment, origin))
    stream.finalize()
    text = painted([*pieces, (stream.last_segment, SAMPLED)])
    text.rstrip()
    return text


@frozen
class Bar:
    """A horizontal bar over a share of the width that there is.

    Drawn in cells whose background has the bar's own colour: without gaps in any font.
    """

    share: float
    colour: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        """One line."""
        cells = max(round(self.share * options.max_width), 1)
        bar = "#" if options.ascii_only else "█"
        yield Segment(bar * cells, Style(color=self.colour, bgcolor=self.colour))


def colours(outcomes: Iterable[Outcome]) -> Text:
    """What the colours mean: a word for each origin that occurs."""
    results = [outcome.counted for outcome in outcomes]
    found = {origin for result in results for origin in result.origins} - {SAMPLED}
    injected = {o for result in results for o in result.stats.fill["injected_from"]}
    entries = [Text("uncoloured: the model alone")]
    for origin in sorted(found):
        how = INJECTED if origin in injected else CONFIRMED
        entries.append(Text.assemble(painted([(origin, origin)]), f": {how}"))
    return Text("   ").join(entries)


def summary(outcomes: Sequence[Outcome]) -> RenderableType:
    """The closing table and what its figures are."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("ask", no_wrap=True)
    for heading in ("tokens", "forwards", "tokens/forward", "time in ms", "speed"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("identical")
    for outcome in outcomes:
        table.add_row(outcome.ask.title, *_figures(outcome), "yes" if outcome.identical else "NO")
    identical = all(outcome.identical for outcome in outcomes)
    load = _other_programs()
    offered = any(outcome.counted.stats.spec["offers"] for outcome in outcomes)
    return Group(
        table,
        "",
        Text(FORWARDS, "dim"),
        Text(TIMES, "dim"),
        *([Text(BUSY.format(load=load), "dim")] if load else []),
        *([] if offered else [Text(NO_SOURCES + _to_have_one(), "yellow")]),
        Text.assemble("identical: ", ("yes", "bold green") if identical else ("NO", "bold red")),
    )


def _to_have_one() -> str:
    """What to do for a plugin that proposes."""
    try:
        return f"{installed_plugin('spec-ngram')} is installed; list it in [plugins] enabled"
    except PluginError as error:
        return str(error)


def _other_programs() -> str:
    """``load 4.0 on 2 cores`` when more threads ran in the last minute than there are cores."""
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    return f"load {load:.1f} on {cores} cores" if load > cores + ALWAYS else ""


def _figures(outcome: Outcome) -> list[str]:
    plain, counted = outcome.plain.stats, outcome.counted.stats
    return [
        str(counted.generated_tokens),
        f"{plain.target_forwards} → {counted.target_forwards}",
        f"{counted.tokens_per_forward:.2f}",
        f"{outcome.plain_ms:.1f} → {outcome.gated_ms:.1f}",
        f"x{outcome.speedup:.2f}",
    ]
