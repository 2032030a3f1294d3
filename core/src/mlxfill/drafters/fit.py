"""Whether a drafter fits a model, by configs, tokenizers and headers; no weights are read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from mlxfill.errors import ModelError
from mlxfill.loading.files import check_header, read_config, read_json
from mlxfill.loading.formats import MODEL
from mlxfill.rules import is_whole

if TYPE_CHECKING:
    from pathlib import Path

PARTS = ("text_config", "transformer_layer_config", "dflash_config", "eagle_config")
"""Where a config may keep the values of its language model, or of its drafter."""
WIDTHS = ("backbone_hidden_size", "target_hidden_size", "hidden_size")
"""Keys of a drafter's config for the width of the target's hidden states, what says more first."""
COUNTS = ("num_target_layers", "target_num_hidden_layers")
LAYERS = ("target_layer_ids", "aux_hidden_state_layer_ids", "eagle_aux_hidden_state_layer_ids")
"""Keys for the layers of the target that a drafter reads."""
VOCABULARY = "tokenizer.json"


def misfit(drafter: Path, target: Path, key: str) -> str:
    """Why the drafter in a folder cannot serve the model in another, in a line; "" if it may.

    :param key: of the drafter's ``FolderFormat``.
    """
    reason = _broken(drafter)
    if not reason and not same_tokenizer(drafter, target):
        return f"{drafter} has another tokenizer than {target}"
    return reason or ("" if key == MODEL else _sizes(drafter, target))


def same_tokenizer(drafter: Path, target: Path) -> bool:
    """Whether the two have the same tokens; true where one of them does not say."""
    ours, theirs = _vocabulary(drafter), _vocabulary(target)
    return ours is None or theirs is None or ours == theirs


def _broken(folder: Path) -> str:
    files = sorted(folder.glob("*.safetensors"))
    for file in files:
        try:
            check_header(file)
        except ModelError as error:
            return str(error)
    return "" if files else f"{folder} has no *.safetensors"


def _vocabulary(folder: Path) -> object:
    """The tokens of a tokenizer; None where there is none that can be read."""
    file = folder / VOCABULARY
    return _tokens(file, file.stat().st_mtime_ns) if file.is_file() else None


@lru_cache(maxsize=2)
def _tokens(file: Path, _changed: int) -> object:
    """The same for its file, kept for the next comparison with that model."""
    with suppress(ModelError):
        parsed = read_json(file)
        model = parsed.get("model") if isinstance(parsed, dict) else None
        return model.get("vocab") if isinstance(model, dict) else None
    return None


def _sizes(drafter: Path, target: Path) -> str:
    ours, theirs = read_config(drafter), read_config(target)
    width = next((each for key in WIDTHS for each in _numbers(ours, (key,))), None)
    wanted = next(_numbers(theirs, ("hidden_size",)), None)
    if width and wanted and width != wanted:
        return f"{drafter} is for a hidden size of {width}, {target} has {wanted}"
    layers = next(_numbers(theirs, ("num_hidden_layers",)), None)
    count = next(_numbers(ours, COUNTS), None)
    if layers and count and count != layers:
        return f"{drafter} is for a model of {count} layers, {target} has {layers}"
    last = max(_numbers(ours, LAYERS), default=0)
    if layers and last > layers:
        return f"{drafter} reads layer {last} of its model, {target} has {layers}"
    return ""


def _numbers(config: Mapping[str, Any], keys: tuple[str, ...]) -> Iterator[int]:
    """Whole numbers under these keys, single or listed, in the config or a part of it."""
    parts = [config.get(part) for part in PARTS]
    for part in [config, *(each for each in parts if isinstance(each, Mapping))]:
        for key in keys:
            found = part.get(key)
            yield from (n for n in (found if isinstance(found, list) else [found]) if is_whole(n))
