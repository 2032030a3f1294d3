"""Prediction heads that lie in a model's folder, where mlx-lm passes over them.

Releases keep multi-token-prediction (MTP) layers among their weights: Qwen, MiMo and LongCat under
names with ``mtp``, DeepSeek and GLM as layers after the last one that the config counts; or in a
file of their own beside the shards.  Headers of safetensors and the config are read, no weights.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import frozen

from mlxfill.errors import DrafterError, ModelError
from mlxfill.loading.files import check_header, read_config, tensor_names, tensor_sizes
from mlxfill.rules import is_whole

if TYPE_CHECKING:
    import mlx.core as mx

PROMISES = ("mtp_num_hidden_layers", "num_nextn_predict_layers", "num_mtp_layers", "n_mtp_layers")
"""Keys of the config that count such layers."""
FILES = ("mtp*.safetensors", "*-mtp.safetensors", "*_mtp.safetensors")
"""Files beside the shards that hold a head alone, whatever its tensors are called."""
FOLDER = "mtp"
"""Folder for the head inside a model's folder."""
_NAMED = re.compile(r"(?:model\.|language_model\.)*mtp\w*\.")
_LAYER = re.compile(r"(?:model\.|language_model\.)*layers\.(\d+)\.")


@frozen
class BakedHead:
    """A head in a model's folder, or the promise of one.

    ``folder``: the model's; ``config``: what its ``config.json`` holds; ``tensors``: names as they
    are stored, and the files that hold them, none where the weights lack what is promised;
    ``promise``: what the config says, "" for nothing; ``broken``: why a file that should hold it
    cannot be read, "" where all can.
    """

    folder: Path
    config: Mapping[str, Any]
    tensors: Mapping[str, Path]
    promise: str
    broken: str = ""

    @property
    def text_config(self) -> Mapping[str, Any]:
        """The language model's part of the config."""
        return _parts(self.config)[0]

    @property
    def what(self) -> str:
        """The tensors in words; "" where there are none."""
        if not self.tensors:
            return ""
        files = sorted({str(file.relative_to(self.folder)) for file in self.tensors.values()})
        where = files[0] if len(files) == 1 else f"{len(files)} files"
        return f"an MTP head of {len(self.tensors)} tensors in {where} ({min(self.tensors)}, ...)"

    @property
    def size(self) -> int:
        """Bytes of the tensors; those of broken files do not count."""
        sizes: dict[str, int] = {}
        for file in set(self.tensors.values()):
            with suppress(ModelError):
                sizes |= tensor_sizes(file)
        return sum(sizes.get(name, 0) for name in self.tensors)

    def read(self) -> dict[str, mx.array]:
        """Its tensors, lazily, those of fp8 as ``read_tensors`` decodes them.

        :raises DrafterError: a file is missing or broken; names it.
        """
        from mlxfill.loading.tensors import read_tensors

        missing = sorted({file for file in self.tensors.values() if not file.is_file()})
        if missing:
            raise DrafterError(
                f"{self.folder} lacks the shard {missing[0].name} that its index lists"
            )
        return read_tensors(sorted(set(self.tensors.values())), self.tensors)


def baked_head(folder: str | os.PathLike[str]) -> BakedHead | None:
    """The head that lies in a model's folder; None where there is none and none is promised.

    It is looked for among the weights, then in a file of its own beside them (``mtp.safetensors``,
    ``model-mtp.safetensors``), then in the folder ``mtp``.  Raises nothing.
    """
    path = Path(folder)
    config = read_config(path)
    parts = _parts(config)
    tensors = _among(tensor_names(path), parts)
    among = {name: path / file for name, file in tensors.items()}
    found, broken = (among, "") if among else _apart(path)
    promise = _promise(parts)
    told = found or promise or broken
    return BakedHead(path, config, found, promise, broken) if told else None


def _parts(config: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    text = config.get("text_config")
    return [text, config] if isinstance(text, Mapping) else [config]


def _among(named: Mapping[str, str], parts: list[Mapping[str, Any]]) -> dict[str, str]:
    """The head's tensors among those of the model, and their files."""
    counts = [part.get("num_hidden_layers") for part in parts]
    layers = next((count for count in counts if is_whole(count) and count > 0), None)

    def beyond(name: str) -> bool:
        match = _LAYER.match(name)
        return match is not None and layers is not None and int(match[1]) >= layers

    return {name: file for name, file in named.items() if _NAMED.match(name) or beyond(name)}


def _apart(folder: Path) -> tuple[dict[str, Path], str]:
    """A head in a file of its own, beside the shards or in a folder of its own.

    None of it counts where a file of it is broken; then why.
    """
    files = [file for pattern in FILES for file in sorted(folder.glob(pattern))]
    found: dict[str, Path] = {}
    for file in files[:1] or sorted((folder / FOLDER).glob("*.safetensors")):
        try:
            found |= dict.fromkeys(check_header(file), file)
        except ModelError as error:
            return {}, str(error)
    return found, ""


def _promise(parts: list[Mapping[str, Any]]) -> str:
    for part in parts:
        for key in PROMISES:
            count = part.get(key)
            if is_whole(count) and count > 0:
                return f"{key} {count}"
    return ""
