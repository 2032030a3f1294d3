"""Parts of documentation pages that are generated, between two marks.

<!-- generated: NAME, by tools/reference.py -->
...
<!-- end of NAME -->
"""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from textwrap import dedent, indent

ROOT = Path(__file__).parents[1]
TOLD = re.compile(r"^``(\w+)``: ", re.MULTILINE)
FIELD = re.compile(r"^:(param \w+|returns|raises [^:]+):", re.MULTILINE)


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
    text = re.sub(r"\bdocs/([\w-]+\.md)", r"[\1](\1)", text)
    return re.sub(r"\.  (?=\S)", ". ", text)


def described(docstring: str) -> str:
    """A cleaned docstring: its paragraphs and examples, then its fields as a list."""
    marks = [match.start() for match in FIELD.finditer(docstring)]
    ends = [*marks, len(docstring)]
    parts = [_paragraph(part) for part in docstring[: ends[0]].strip().split("\n\n")]
    fields = [_item(docstring[a:b]) for a, b in pairwise(ends)]
    return "\n\n".join(part for part in (*parts, "\n".join(fields)) if part)


def told_of(docstring: str) -> tuple[str, dict[str, str]]:
    """A cleaned docstring without its lines that begin with ``name``:, and what those say."""
    prose, told = [], {}
    for paragraph in docstring.split("\n\n"):
        before, *parts = TOLD.split(paragraph)
        prose.append(before.rstrip())
        told.update(
            {name: as_markdown(text) for name, text in zip(parts[::2], parts[1::2], strict=True)}
        )
    return "\n\n".join(filter(None, prose)), told


def item(head: str, text: str) -> str:
    """A list item: a name as it is written in code, and what is said of it."""
    first, _, rest = text.partition("\n\n")
    line = f"- `{head}`: {first}" if first else f"- `{head}`"
    return f"{line}\n\n{indent(rest, '    ')}\n" if rest else line


def _paragraph(text: str) -> str:
    if text.startswith("    "):
        return f"```text\n{dedent(text)}\n```"
    return as_markdown(text).removesuffix("::").rstrip()


def _item(field: str) -> str:
    _, kind, text = field.split(":", 2)
    word, _, name = kind.partition(" ")
    label = {"param": f"`{name}`", "raises": f"raises `{name}`", "returns": "returns"}[word]
    return f"- {label}: {as_markdown(text)}"


def row(*cells: str) -> str:
    """One row of a table."""
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
