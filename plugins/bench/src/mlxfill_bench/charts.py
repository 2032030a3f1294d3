"""The plots of a measurement: as SVG that takes the colours of the page, and as pictures."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING, Any

from attrs import frozen

from mlxfill import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from mlxfill_bench.effect import Effect
    from mlxfill_bench.measuring import Measurement
    from mlxfill_bench.observed import Position

WIDTH = 6.2
"""Inches."""
ROW = 0.5
DPI = 300
FONT = 12
"""Points: legible on a telephone, where the page is half as wide as a drawing."""
FURTHEST = 16
"""Positions beyond are rare."""
COLOURS = {
    "ink": "#1f2328",
    "faint": "#656d76",
    "line": "#d1d9e0",
    "helps": "#1a7f37",
    "harmless": "#3b6ea5",
    "undecided": "#9a6700",
    "idle": "#6e7781",
    "harms": "#cf222e",
    "faulty": "#cf222e",
    "series-0": "#0b6bcb",
    "series-1": "#b35900",
    "series-2": "#1a7f37",
    "series-3": "#8250df",
    "series-4": "#bf3989",
    "series-5": "#57606a",
}
"""On paper.  On the page each is a variable of the style sheet by the same name."""
SERIES = [name for name in COLOURS if name.startswith("series")]
MARKERS = "osD^vP"


@frozen
class Chart:
    """One plot: file name, title, what it shows in a sentence, and how it is drawn.

    ``draw`` takes the measurement and answers the axes' figure.
    """

    name: str
    title: str
    caption: str
    draw: Callable[[Measurement], Figure]

    def svg(self, measured: Measurement) -> str:
        """Markup to stand in a page; text stays text."""
        import matplotlib as mpl

        out = io.StringIO()
        with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": self.name, "font.size": FONT}):
            self.draw(measured).savefig(
                out, format="svg", bbox_inches="tight", metadata={"Date": None}, transparent=True
            )
        return _for_page(out.getvalue(), self.name, self.title)

    def png(self, measured: Measurement) -> bytes:
        """A picture on white."""
        import matplotlib as mpl

        out = io.BytesIO()
        with mpl.rc_context({"font.size": FONT}):
            self.draw(measured).savefig(out, format="png", bbox_inches="tight", dpi=DPI)
        return out.getvalue()


def _for_page(svg: str, name: str, title: str) -> str:
    """The drawing as a part of a page, which has its own colours, fonts and ids."""
    markup = re.sub(r"<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    for variable, colour in COLOURS.items():
        markup = markup.replace(colour, f"var(--{variable})")
    markup = re.sub(r" font-family: [^;\"]*;", "", markup)
    used = set(re.findall(r"#([\w-]+)", markup))
    markup = re.sub(
        r' id="([^"]*)"', lambda m: f' id="{name}-{m[1]}"' if m[1] in used else "", markup
    )
    markup = re.sub(r"(url\(|href=\")#", rf"\1#{name}-", markup)
    opening, rest = markup.split(">", 1)
    opening = re.sub(r' (width|height)="[^"]*"', "", opening)
    return f'{opening} role="img" aria-label="{title}">{rest}'


def save_pictures(folder: Path, measured: Measurement) -> None:
    """Write every chart as ``NAME.png``.  Raises ``InputError``."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for chart in charts(measured):
            (folder / f"{chart.name}.png").write_bytes(chart.png(measured))
    except OSError as error:
        raise InputError(f"--png {folder}: {error.strerror or error}") from error


def charts(measured: Measurement) -> list[Chart]:
    """The charts that there is something to show in."""
    guessed = any(effect.by_position for effect in measured.effects)
    return [RATIO, PER_FORWARD, *([POSITIONS] if guessed else [])]


def _ratio(measured: Measurement) -> Figure:
    """A row an arm: each prompt a ring, the interval a bar, the estimate a dot."""
    effects = measured.effects
    axes = _axes(ROW * len(effects) + 0.9)
    axes.axvspan(1 - measured.facts["slack"], 1, color=COLOURS["line"], alpha=0.6, linewidth=0)
    axes.axvline(1, color=COLOURS["faint"], linewidth=1, linestyle=(0, (4, 3)))
    for at, effect in enumerate(effects):
        speed, colour = effect.speed, COLOURS[effect.verdict]
        each = [prompt.ratio for prompt in effect.by_prompt.values()]
        axes.plot(each, [at] * len(each), "o", color=COLOURS["faint"], fillstyle="none")
        axes.plot([speed.low, speed.high], [at, at], color=colour, linewidth=5, alpha=0.45)
        axes.plot(speed.ratio, at, "o", color=colour, markersize=8, zorder=3)
    _arm_ticks(axes, [effect.arm for effect in effects])
    right = axes.secondary_yaxis("right")
    right.set_yticks(range(len(effects)), [f"x{e.speed.ratio:.2f}  {e.verdict}" for e in effects])
    _quiet(right)
    axes.set_xlabel("times faster than plain decoding")
    return _figure(axes)


def _per_forward(measured: Measurement) -> Figure:
    """A bar an arm."""
    names = ["plain", *(effect.arm for effect in measured.effects)]
    plain = measured.plain.tokens_per_forward
    values = [plain, *(e.figures.tokens_per_forward for e in measured.effects)]
    axes = _axes(ROW * len(names) + 0.8)
    colours = [COLOURS["faint"], *[COLOURS["series-0"]] * len(measured.effects)]
    bars = axes.barh(range(len(names)), values, color=colours, height=0.6)
    axes.bar_label(bars, fmt="%.2f", padding=4, color=COLOURS["ink"])
    _arm_ticks(axes, names)
    axes.set_xlim(0, max(values) * 1.12)
    axes.set_xlabel("tokens by forwards of the model")
    return _figure(axes)


def _positions(measured: Measurement) -> Figure:
    """A line for each arm and origin."""
    from matplotlib.ticker import MaxNLocator

    lines = _lines(measured.effects)
    axes = _axes(3.2 + 0.27 * len(lines))
    for number, (label, positions) in enumerate(lines):
        shown = positions[:FURTHEST]
        axes.plot(
            [p.position for p in shown],
            [100 * p.accepted / p.judged for p in shown],
            color=COLOURS[SERIES[number % len(SERIES)]],
            marker=MARKERS[number % len(MARKERS)],
            markersize=5,
            linewidth=1.6,
            linestyle="-" if number < len(SERIES) else "--",
            label=label,
        )
    axes.set_ylim(-4, 104)
    axes.set_ylabel("held, %")
    axes.set_xlabel("position of the guess in its span")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(axis="y", color=COLOURS["line"], linewidth=0.8)
    axes.set_axisbelow(True)
    figure = _figure(axes)
    figure.legend(loc="outside lower left", frameon=False, labelcolor=COLOURS["ink"])
    return figure


def _lines(effects: Sequence[Effect]) -> list[tuple[str, Sequence[Position]]]:
    return [
        (effect.arm if len(effect.by_position) == 1 else f"{effect.arm}: {origin}", positions)
        for effect in effects
        for origin, positions in effect.by_position.items()
    ]


def _axes(height: float) -> Axes:
    """Empty axes in the colours of the page, without a window system."""
    from matplotlib.figure import Figure

    axes = Figure(figsize=(WIDTH, height), layout="constrained").add_subplot()
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(COLOURS["line"])
    axes.tick_params(colors=COLOURS["ink"], length=0, pad=6)
    for label in (axes.xaxis.label, axes.yaxis.label):
        label.set_color(COLOURS["faint"])
    return axes


def _arm_ticks(axes: Axes, names: Sequence[str]) -> None:
    axes.set_yticks(range(len(names)), [name.replace("+", "\n+ ") for name in names])
    axes.set_ylim(len(names) - 0.5, -0.5)


def _quiet(axis: Any) -> None:  # noqa: ANN401 - matplotlib's SecondaryAxis
    axis.tick_params(length=0, pad=6, colors=COLOURS["ink"])
    axis.spines["right"].set_visible(False)


def _figure(axes: Axes) -> Figure:
    from matplotlib.figure import Figure

    figure = axes.figure
    assert isinstance(figure, Figure)  # noqa: S101 - they stand in no subfigure
    return figure


RATIO = Chart(
    "speed",
    "Wall time",
    "How many times faster than plain decoding: estimate and 95 % interval; a ring is one prompt. "
    "The grey band is the slack within which an arm counts as harmless.",
    _ratio,
)
PER_FORWARD = Chart(
    "tokens-per-forward",
    "Tokens per forward",
    "Tokens that one pass through the model brings.  A pass with guesses costs more than one "
    "without: more tokens per forward are not yet a shorter time.",
    _per_forward,
)
POSITIONS = Chart(
    "acceptance",
    "Guesses that held, by position",
    "Of the guesses at each position of a span that were compared with the model's own choice, the "
    "share that it confirmed.",
    _positions,
)
