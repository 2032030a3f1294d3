"""The demo as a picture for a README: SVG with a background of its own, for light and dark."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from rich.console import Console
from rich.padding import Padding
from rich.terminal_theme import TerminalTheme

from mlxfill import InputError
from mlxfill_model_tiny.demo.picture import block, colours, heading

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from mlxfill import Engine
    from mlxfill_model_tiny.demo.race import Outcome

WIDTH = 89
SHOWN = 2
NAME = "mlxfill-demo"
THEME = TerminalTheme(
    background=(22, 27, 34),
    foreground=(214, 220, 228),
    normal=[
        (22, 27, 34),
        (255, 123, 114),
        (86, 211, 122),
        (227, 179, 65),
        (108, 172, 255),
        (210, 148, 255),
        (86, 212, 221),
        (214, 220, 228),
    ],
    bright=[
        (139, 148, 158),
        (255, 161, 152),
        (126, 231, 135),
        (242, 204, 96),
        (148, 197, 255),
        (226, 178, 255),
        (118, 227, 234),
        (255, 255, 255),
    ],
)
FONTS = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
FORMAT = f"""\
<svg viewBox="0 0 {{width}} {{height}}" xmlns="http://www.w3.org/2000/svg" role="img">
<title>mlxfill demo: tokens coloured by where they came from</title>
<style>
.{{unique_id}}-matrix {{{{
font-family: {FONTS}; font-size: {{char_height}}px; line-height: {{line_height}}px;
}}}}
.{{unique_id}}-title {{{{ font-family: sans-serif; font-size: 18px; }}}}
{{styles}}
</style>
<defs>
<clipPath id="{{unique_id}}-clip-terminal">
<rect x="0" y="0" width="{{terminal_width}}" height="{{terminal_height}}" />
</clipPath>
{{lines}}
</defs>
{{chrome}}
<g transform="translate({{terminal_x}}, {{terminal_y}})"
clip-path="url(#{{unique_id}}-clip-terminal)">
{{backgrounds}}
<g class="{{unique_id}}-matrix">
{{matrix}}
</g>
</g>
</svg>
"""


def save(file: Path, engine: Engine, outcomes: Sequence[Outcome]) -> None:
    """Draw the asks that gain most.

    :raises InputError: the file cannot be written.
    """
    gains = sorted(outcomes, key=lambda o: -o.counted.stats.tokens_per_forward)[:SHOWN]
    shown = [outcome for outcome in outcomes if outcome in gains]
    console = Console(
        record=True,
        width=WIDTH,
        file=io.StringIO(),
        force_terminal=True,
        color_system="truecolor",
        highlight=False,
    )
    parts = [*(block(engine, outcome) for outcome in shown), colours(shown)]
    console.print(*(Padding(part, (0, 1)) for part in ["", *parts]), sep="\n")
    title = heading(engine).plain
    drawn = console.export_svg(title=title, theme=THEME, code_format=FORMAT, unique_id=NAME)
    try:
        file.write_text(drawn, encoding="utf-8")
    except OSError as error:
        raise InputError(f"--svg {file}: {error.strerror or error}") from error
