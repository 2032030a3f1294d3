"""Parts of documentation pages that are generated, between two marks.

<!-- generated: NAME, by tools/reference.py -->
...
<!-- end of NAME -->
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def renewed(page: str, name: str, text: str) -> str:
    """``page`` with ``text`` between the marks of ``name``.  Raises ``ValueError`` without them."""
    opening, closing = (
        f"<!-- generated: {name}, by tools/reference.py -->",
        f"<!-- end of {name} -->",
    )
    if page.count(opening) != 1 or page.count(closing) != 1:
        raise ValueError(f"the page needs one {opening} and one {closing}")
    before, rest = page.split(opening)
    _, after = rest.split(closing)
    return f"{before}{opening}\n{text.strip()}\n{closing}{after}"


def as_markdown(docstring: str) -> str:
    """A docstring's inline marks and spacing, as Markdown has them."""
    text = re.sub(r"``(.+?)``", r"`\1`", " ".join(docstring.split()))
    return re.sub(r"\.  (?=\S)", ". ", text)


def row(*cells: str) -> str:
    """One row of a table."""
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
