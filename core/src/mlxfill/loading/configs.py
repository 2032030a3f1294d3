"""The values in a model's JSON files that mlx-lm and mlxfill rely on, checked before they are used.

mlx-lm hands a config to a model's arguments as it is: half a bit, a layer count in words or a list
for an object then fail somewhere else, or not at all.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from mlxfill.errors import ModelError
from mlxfill.loading.files import read_json
from mlxfill.rules import is_whole

if TYPE_CHECKING:
    from pathlib import Path

    Legal = Callable[[Any], bool]

_MOST = (1 << 31) - 1
MOST_LAYERS = 1000


def _whole(low: int, high: int = _MOST) -> Legal:
    return lambda value: is_whole(value) and low <= value <= high


def _listed(legal: Legal) -> Legal:
    """One, or a list of them."""
    return lambda value: (
        bool(value) and all(map(legal, value)) if isinstance(value, list) else legal(value)
    )


def _number(value: object) -> bool:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return math.isfinite(value) and value > 0


def _object(value: object) -> bool:
    return isinstance(value, Mapping)


def _boolean(value: object) -> bool:
    return isinstance(value, bool)


def _text(value: object) -> bool:
    return isinstance(value, str)


def _token(value: object) -> bool:
    """Text, or an object with it, as tokenizers write their special tokens."""
    return isinstance(value, str) or (isinstance(value, Mapping) and _text(value.get("content")))


_SIZE = "a whole number of at least 1"
_EACH = f"{_SIZE}, or a list of them"
_IDS = "a token id, or a list of them"
Rules = Mapping[str, tuple[str, "Legal"]]
MODEL: Rules = {
    "num_hidden_layers": (f"a whole number from 1 to {MOST_LAYERS}", _whole(1, MOST_LAYERS)),
    **dict.fromkeys(
        ("hidden_size", "vocab_size", "head_dim", "max_position_embeddings"), (_SIZE, _whole(1))
    ),
    **dict.fromkeys(
        ("intermediate_size", "num_attention_heads", "num_key_value_heads"),
        (_EACH, _listed(_whole(0))),
    ),
    **dict.fromkeys(("rms_norm_eps", "layer_norm_eps", "rope_theta"), ("above 0", _number)),
    **dict.fromkeys(("tie_word_embeddings", "attention_bias"), ("true or false", _boolean)),
    **dict.fromkeys(
        ("rope_scaling", "rope_parameters", "text_config", "quantization", "quantization_config"),
        ("an object", _object),
    ),
    "eos_token_id": (_IDS, _listed(_whole(0))),
}
QUANTIZATION: Rules = {
    "bits": ("a whole number from 1 to 8", _whole(1, 8)),
    "group_size": (_SIZE, _whole(1)),
    "mode": ("text", _text),
}
GENERATION: Rules = {"eos_token_id": MODEL["eos_token_id"]}
TOKENIZER: Rules = {
    **dict.fromkeys(("eos_token", "bos_token", "pad_token", "unk_token"), ("text", _token)),
    **dict.fromkeys(("tokenizer_class", "tool_parser_type"), ("text", _text)),
    **dict.fromkeys(("add_bos_token", "add_eos_token"), ("true or false", _boolean)),
    "model_max_length": ("above 0", _number),
    "chat_template": ("text, or a list", lambda value: isinstance(value, str | list | Mapping)),
}
OTHERS = {"generation_config.json": GENERATION, "tokenizer_config.json": TOKENIZER}
"""Files that need not be there."""


def check_config(file: Path) -> None:
    """Raise ``ModelError`` that names file, key and value unless a ``config.json`` can be used."""
    config = _read(file)
    if not isinstance(config.get("model_type"), str):
        shown = f": {reprlib.repr(config['model_type'])}" if "model_type" in config else ""
        raise ModelError(f"{file} names no model_type{shown}")
    _check(file, MODEL, config)
    _check(file, MODEL, config.get("text_config") or {}, "text_config.")
    for key, table in _quantizations(config):
        _check(file, QUANTIZATION, table, f"{key}.")
    for name in ("bits", "group_size"):
        whole = config.get("quantization")
        if whole is not None and whole.get(name) is None:
            raise ModelError(f"{file}: quantization lacks {name}")


def check_other_configs(folder: Path) -> None:
    """The same of the JSON files beside it, where there are any."""
    for name, rules in OTHERS.items():
        if (folder / name).is_file():
            _check(folder / name, rules, _read(folder / name))


def _quantizations(config: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The table of all layers, and those of single ones."""
    whole = config.get("quantization")
    if whole is not None:
        yield "quantization", whole
        for key, value in whole.items():
            if isinstance(value, Mapping):
                yield f"quantization.{key}", value


def _read(file: Path) -> Mapping[str, Any]:
    parsed = read_json(file)
    if not isinstance(parsed, dict):
        raise ModelError(f"{file} must hold a JSON object, not {reprlib.repr(parsed)}")
    return parsed


def _check(file: Path, rules: Rules, table: Mapping[str, Any], at: str = "") -> None:
    """Null stands for what is not said."""
    for key, (words, legal) in rules.items():
        value = table.get(key)
        if value is not None and not legal(value):
            raise ModelError(f"{file}: {at}{key} must be {words}, not {reprlib.repr(value)}")
