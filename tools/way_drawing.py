"""The drawing of ``docs/how-it-works.md``: the way of a token through the folders of the core.

Boxes are opaque and carry their own text, lines and captions have a grey that stands out from white
and from black, so one file serves light and dark pages.
"""

from __future__ import annotations

from html import escape

from attrs import frozen

from pages import ROOT

FILE = ROOT / "docs" / "images" / "way.svg"
WIDTH, HEIGHT = 820, 600
GREY = "#7d8590"
START, REQUEST, LOOP, BESIDE = "#2f5f8f", "#2b6b4d", "#9a4d10", "#5d4d91"
LINE_HEIGHT = 16


@frozen
class Box:
    """One stage: its folders, and what they do in a line or two."""

    x: int
    y: int
    width: int
    colour: str
    name: str
    lines: tuple[str, ...]

    @property
    def height(self) -> int:
        """Room for the name and the lines."""
        return 30 + LINE_HEIGHT * len(self.lines)

    def drawn(self) -> str:
        """The box as SVG."""
        x, y = self.x + self.width // 2, self.y + 20
        text = [f'<text class="name" x="{x}" y="{y}">{escape(self.name)}</text>']
        for number, line in enumerate(self.lines, 1):
            at = y + LINE_HEIGHT * number
            text.append(f'<text class="line" x="{x}" y="{at}">{escape(line)}</text>')
        place = f'x="{self.x}" y="{self.y}" width="{self.width}" height="{self.height}"'
        return "\n".join([f'<rect {place} rx="6" fill="{self.colour}"/>', *text])


BOXES = (
    Box(20, 32, 200, START, "config + plugins", ("settings; finding plugins",)),
    Box(280, 32, 180, START, "loading, drafters", ("files to a model",)),
    Box(520, 32, 280, START, "model", ("any mlx-lm model behind one interface",)),
    Box(20, 128, 130, REQUEST, "cli, engine", ("the public face",)),
    Box(190, 128, 180, REQUEST, "chat", ("messages to text and ids",)),
    Box(410, 128, 170, REQUEST, "request", ("what is asked, checked",)),
    Box(620, 128, 180, REQUEST, "prefix_cache", ("what was read before",)),
    Box(44, 262, 190, LOOP, "proposals", ("sources and the drafter offer", "what may come next")),
    Box(290, 262, 190, LOOP, "policy", ("does it pay?", "how deep?")),
    Box(
        540,
        262,
        236,
        LOOP,
        "forward",
        ("one forward of the window;", "what does the model choose?"),
    ),
    Box(540, 378, 236, LOOP, "rewind + rows", ("take refused tokens", "back out of the caches")),
    Box(44, 378, 190, LOOP, "accepted tokens", ("and one of the", "model's own")),
    Box(190, 500, 180, REQUEST, "chat + tool_calls", ("ids to text and calls",)),
    Box(20, 500, 130, REQUEST, "request", ("Piece, Result",)),
    Box(410, 500, 170, BESIDE, "checkpoint, resume", ("a run kept in a file",)),
    Box(620, 500, 180, BESIDE, "audit", ("beside plain decoding",)),
)
CAPTIONS = (
    (20, 22, "when an engine starts"),
    (20, 118, "when a request opens"),
    (44, 246, "decode: the prompt first, then round after round"),
    (290, 411, "batch: several requests"),
    (290, 427, "may share each forward"),
    (20, 490, "what comes out"),
    (410, 490, "beside a run"),
)
ARROWS = (
    "M220 55 H274",
    "M460 55 H514",
    "M150 151 H184",
    "M370 151 H404",
    "M580 151 H614",
    "M710 174 V216",
    "M780 78 V104 H806 V285 H782",
    "M234 293 H284",
    "M480 293 H534",
    "M658 324 V372",
    "M540 392 H240",
    "M139 378 V330",
    "M100 440 V464 H280 V494",
    "M190 523 H156",
)
STYLE = f"""
text {{ font-family: system-ui, "Segoe UI", Roboto, sans-serif; text-anchor: middle }}
.name {{ font-size: 14px; font-weight: 600; fill: #fff }}
.line {{ font-size: 12px; fill: #fff }}
.caption {{ font-size: 12.5px; font-style: italic; fill: {GREY}; text-anchor: start }}
path {{ fill: none; stroke: {GREY}; stroke-width: 2 }}
"""


TIP = f'<path d="M0 0 L8 4 L0 8 Z" style="fill: {GREY}; stroke: none"/>'
SIZE = 'viewBox="0 0 8 8" refX="7" refY="4" markerWidth="5" markerHeight="5" orient="auto"'
MARKER = f'<defs><marker id="tip" {SIZE}>{TIP}</marker></defs>'
PLACE = 'x="20" y="222" width="780" height="230" rx="8"'
FRAME = f'<rect {PLACE} fill="none" stroke="{GREY}" stroke-dasharray="5 4"/>'


def drawing() -> str:
    """The file."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT - 36}" role="img">',
        "<title>The way of a token through the folders of core/src/mlxfill</title>",
        f"<style>{STYLE}</style>",
        MARKER,
        FRAME,
        *(f'<path d="{way}" marker-end="url(#tip)"/>' for way in ARROWS),
        *(box.drawn() for box in BOXES),
        *(f'<text class="caption" x="{x}" y="{y}">{escape(t)}</text>' for x, y, t in CAPTIONS),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"
