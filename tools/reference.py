"""Write the generated parts of the documentation anew: ``python tools/reference.py``."""

from __future__ import annotations

import api_page
import architectures_page
import config_page
import contracts_page
import hooks_page
import serve_page
import way_drawing
from pages import ROOT, renewed

PARTS = {
    "docs/api.md": {"api": api_page.reference},
    "docs/contracts.md": {"contracts": contracts_page.reference},
    "docs/hooks.md": {"diagram": hooks_page.diagram, "hooks": hooks_page.reference},
    "docs/config.md": {"settings": config_page.reference},
    "docs/serve.md": {"fields": serve_page.table},
    "docs/architectures.md": {
        "files": architectures_page.table,
        "remapped": architectures_page.remapped,
    },
}
"""Pages, and what is generated in them."""


def current(page: str) -> str:
    """A page of ``PARTS`` as it should be."""
    text = (ROOT / page).read_text("utf-8")
    for name, make in PARTS[page].items():
        text = renewed(text, name, make())
    return text


if __name__ == "__main__":
    for name in PARTS:
        (ROOT / name).write_text(current(name), "utf-8")
    way_drawing.FILE.write_text(way_drawing.drawing(), "utf-8")
