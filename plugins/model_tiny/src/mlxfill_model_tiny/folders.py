"""Where the models lie."""

from __future__ import annotations

from pathlib import Path

_MODELS = Path(__file__).parent / "models"

FOLDERS = {
    "tiny": _MODELS / "target",
    "tiny-draft": _MODELS / "draft",
    "tiny-mtp": _MODELS / "mtp",
    "tiny-dflash": _MODELS / "dflash",
}
"""Model name to folder."""
