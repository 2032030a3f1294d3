"""What a soak's process held, minute by minute, as a picture.

python benchmarks/soak_chart.py SOAK.json PICTURE.png
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

LINES = {
    "rss_mb": ("resident, with what is kept of freed memory", "#b0b8c1"),
    "held_mb": ("held once that is given back", "#0b6bcb"),
    "heap_mb": ("of it the C library's heap", "#b35900"),
    "active_mb": ("mlx's arrays", "#1a7f37"),
}
"""What is drawn, with its words and its colour."""


def draw(soak: dict[str, Any], picture: Path) -> None:
    """Lines of the samples, from the content of ``soak.py --json``."""
    from matplotlib.figure import Figure

    samples = soak["samples"]
    figure = Figure(figsize=(7.6, 3.8), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    minutes = [sample["minute"] for sample in samples]
    for name, (words, colour) in LINES.items():
        values = [sample[name] for sample in samples]
        axes.plot(minutes, values, color=colour, label=words, linewidth=1.6)
    axes.set(xlabel="minutes", ylabel="MB", xlim=(0, max(minutes)), ylim=(0, None))
    axes.set_title(f"{soak['requests']:,} requests, {len(soak['failures'])} failures", fontsize=11)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#e5e9ed")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2, frameon=False)
    figure.savefig(picture)


if __name__ == "__main__":
    draw(json.loads(Path(sys.argv[1]).read_text("utf-8")), Path(sys.argv[2]))
