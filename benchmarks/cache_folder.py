"""Where the benchmarks keep what they download or build: one folder that git never sees."""

from __future__ import annotations

from pathlib import Path

DEFAULT_CACHE = Path(__file__).resolve().parent.parent / ".cache" / "benchmarks"


def cache_folder(root: Path = DEFAULT_CACHE) -> Path:
    """Make ``root`` if need be, with a ``.gitignore`` that covers all of it."""
    root.mkdir(parents=True, exist_ok=True)
    marker = root / ".gitignore"
    if not marker.exists():
        marker.write_text("*\n", encoding="utf-8")
    return root
