"""A hook of mkdocs: the entry ``Decisions`` of the menu lists every page in ``docs/adr``."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def on_config(config: Any) -> Any:  # noqa: ANN401 - mkdocs' own object
    """Fill the entry with the pages as they are numbered."""
    pages = sorted(Path(config.docs_dir, "adr").glob("*.md"))
    (reference,) = (entry["Reference"] for entry in config.nav if "Reference" in entry)
    (decisions,) = (entry for entry in reference if "Decisions" in entry)
    decisions["Decisions"] = [f"adr/{page.name}" for page in pages]
    return config
