"""Prediction heads that lie in a model's folder, where mlx-lm passes over them.

Releases keep multi-token-prediction (MTP) layers among their weights: Qwen, MiMo and LongCat under
names with ``mtp``, DeepSeek and GLM as layers after the last one that the config counts.  Headers
of safetensors and the config are read, no weights.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from attrs import frozen

from mlxfill.errors import ModelError
from mlxfill.loading.files import read_json, tensor_names
from mlxfill.rules import is_whole

if TYPE_CHECKING:
    from pathlib import Path

PROMISES = ("mtp_num_hidden_layers", "num_nextn_predict_layers", "num_mtp_layers", "n_mtp_layers")
"""Keys of the config that count such layers."""
FILES = ("mtp.safetensors", "mtp*.safetensors", "*-mtp.safetensors", "*_mtp.safetensors")
"""Files beside the shards that hold a head alone, whatever its tensors are called."""
FAMILY = ("qwen3_5", "qwen3_next")
FOLDER = "mtp"
"""Folder for the head inside a model's folder."""
_NAMED = re.compile(r"(?:model\.|language_model\.)*mtp\w*\.")
_LAYER = re.compile(r"(?:model\.|language_model\.)*layers\.(\d+)\.")


@frozen
class BakedHead:
    """A head in a model's folder, or the promise of one.

    ``what``: its tensors in words, "" where there are none; ``promise``: what the config says, "".
    ``family``: the model is of the Qwen3.5 family; ``raw``: all its tensors are ``mtp.*`` of full
    precision among those of the model, from which they can be split.
    """

    what: str
    promise: str
    family: bool
    raw: bool = False


def baked_head(folder: Path) -> BakedHead | None:
    """The head that lies in a model's folder; None where there is none and none is promised."""
    parsed: Any = None
    with suppress(ModelError):
        parsed = read_json(folder / "config.json")
    config = parsed if isinstance(parsed, dict) else {}
    text = config.get("text_config")
    parts: list[Mapping[str, Any]] = [text, config] if isinstance(text, Mapping) else [config]
    found = _head_tensors(tensor_names(folder), parts)
    what = _told(found) if found else _apart(folder)
    promise = _promise(parts)
    if not what and not promise:
        return None
    family = any(str(part.get("model_type")).startswith(FAMILY) for part in parts)
    raw = all(name.startswith("mtp.") and "weight_scale" not in name for name in found)
    return BakedHead(what, promise, family, raw and bool(found))


def _head_tensors(named: Mapping[str, str], parts: list[Mapping[str, Any]]) -> dict[str, str]:
    """The head's tensors among those of the model, and their files."""
    counts = [part.get("num_hidden_layers") for part in parts]
    layers = next((count for count in counts if is_whole(count) and count > 0), None)

    def beyond(name: str) -> bool:
        match = _LAYER.match(name)
        return match is not None and layers is not None and int(match[1]) >= layers

    return {name: file for name, file in named.items() if _NAMED.match(name) or beyond(name)}


def _told(found: Mapping[str, str]) -> str:
    first, files = min(found), sorted(set(found.values()))
    where = files[0] if len(files) == 1 else f"{len(files)} files"
    return f"an MTP head of {len(found)} tensors in {where} ({first}, ...)"


def _apart(folder: Path) -> str:
    """A file of a head alone, beside the shards or in a folder of its own."""
    files = [file for pattern in FILES for file in sorted(folder.glob(pattern))]
    files += sorted((folder / FOLDER).glob("*.safetensors"))
    return f"an MTP head in {files[0].relative_to(folder)}" if files else ""


def _promise(parts: list[Mapping[str, Any]]) -> str:
    for part in parts:
        for key in PROMISES:
            count = part.get(key)
            if is_whole(count) and count > 0:
                return f"{key} {count}"
    return ""
