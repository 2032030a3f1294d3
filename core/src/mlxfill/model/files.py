"""Reading the files of models and adapters; a broken one is named."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from mlxfill.errors import ModelError, reason

if TYPE_CHECKING:
    from pathlib import Path


def read_json(path: Path) -> Any:  # noqa: ANN401
    """What a JSON file holds.  Raises ``ModelError``."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        message = f"{path} cannot be read as JSON: {reason(error)}"
        raise ModelError(message) from error


def check_header(file: Path) -> None:
    """Raise ``ModelError`` unless a safetensors file is whole."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="numpy") as opened:
            opened.keys()
    except (SafetensorError, OSError) as error:
        message = f"{file} is no whole safetensors file: {reason(error)}"
        raise ModelError(message) from error
