"""Reading the files of models and adapters; a broken one is named."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from mlxfill.errors import ModelError, reason

if TYPE_CHECKING:
    from pathlib import Path

LONGEST_JSON = 64 << 20
"""Bytes of a config or an index."""
INDEX = "model.safetensors.index.json"


def tensor_names(folder: Path) -> dict[str, str]:
    """Names of all tensors in ``*.safetensors`` of a folder, and their files; headers are read.

    What the index lists counts, whether the file is there or not; a broken file has no tensors.
    """
    named: dict[str, str] = {}
    listed = _weight_map(folder / INDEX)
    for file in sorted(folder.glob("*.safetensors")):
        if file.name not in listed.values():
            with suppress(ModelError):
                named.update(dict.fromkeys(check_header(file), file.name))
    return {**named, **listed}


def _weight_map(index: Path) -> dict[str, str]:
    """Tensors and files by an index; nothing where there is none that can be read."""
    with suppress(ModelError):
        parsed = read_json(index) if index.is_file() else None
        listed = parsed.get("weight_map") if isinstance(parsed, dict) else None
        if isinstance(listed, dict) and all(isinstance(file, str) for file in listed.values()):
            return listed
    return {}


def read_json(path: Path) -> Any:  # noqa: ANN401
    """What a JSON file holds.  Raises ``ModelError``."""
    try:
        too_long = path.stat().st_size > LONGEST_JSON
        parsed = None if too_long else json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        message = f"{path} cannot be read as JSON: {reason(error)}"
        raise ModelError(message) from error
    if too_long:
        raise ModelError(f"{path} is longer than {LONGEST_JSON >> 20} MB: it is no such file")
    return parsed


def read_config(folder: Path) -> dict[str, Any]:
    """What the ``config.json`` of a folder holds; nothing where it cannot be read as an object."""
    with suppress(ModelError):
        parsed = read_json(folder / "config.json")
        return parsed if isinstance(parsed, dict) else {}
    return {}


def check_header(file: Path) -> list[str]:
    """Names of the tensors of a safetensors file.  Raises ``ModelError`` unless it is whole."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="numpy") as opened:
            return list(opened.keys())
    except (SafetensorError, OSError) as error:
        message = f"{file} is no whole safetensors file: {reason(error)}"
        raise ModelError(message) from error


def tensor_sizes(file: Path) -> dict[str, int]:
    """Bytes of each tensor of a safetensors file.  Raises ``ModelError`` unless it is whole."""
    names = check_header(file)
    with file.open("rb") as opened:
        header = json.loads(opened.read(int.from_bytes(opened.read(8), "little")))
    offsets = {name: header[name]["data_offsets"] for name in names}
    return {name: end - start for name, (start, end) in offsets.items()}
