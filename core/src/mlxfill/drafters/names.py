"""By which names a model is known, and which published drafters belong to it."""

from __future__ import annotations

import re
from contextlib import suppress
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import frozen

from mlxfill.loading.files import read_config

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

SNAPSHOTS = "snapshots"
"""In the hub cache a model lies in ``models--OWNER--NAME/snapshots/REVISION``."""
CARD = "README.md"
BASES = ("base_model", "target_model", "target_model_name_or_path", "base_model_name_or_path")
"""Keys of a card or a config that name the model that another one was made from or for."""
_CONVERTED = re.compile(
    r"[-_.](mlx|\d+bits?|q\d|(bf|fp|f|int)\d+|(mx|nv)fp\d|awq|gptq|dwq|qat|optiq|hf|dynamic)(?=[-_.]|$)"
)
"""What conversions add to the name of a model."""


@frozen
class Pair:
    """A published drafter: ``format`` is a key of ``FolderFormat``, the others are hub ids."""

    format: str
    drafter: str
    target: str


@cache
def published_pairs() -> tuple[Pair, ...]:
    """The table of published drafters."""
    text = files("mlxfill.drafters").joinpath("pairs.txt").read_text("utf-8")
    return tuple(Pair(*line.split()) for line in text.splitlines() if line[:1] not in ("", "#"))


def normal(name: str) -> str:
    """A name without its owner and without what conversions add: ``qwen3-8b``."""
    last = name.rstrip("/").rpartition("/")[2].lower().removeprefix("meta-")
    return _CONVERTED.sub("", last)


def hub_id(folder: Path) -> str:
    """``OWNER/NAME`` of a folder in a hub cache; "" for any other."""
    if folder.parent.name != SNAPSHOTS:
        return ""
    kind, _, name = folder.parent.parent.name.partition("--")
    return name.replace("--", "/", 1) if kind == "models" else ""


def names_of(folder: Path) -> set[str]:
    """What the model in a folder is called, in normal form."""
    own = hub_id(folder) or folder.name
    return {normal(name) for name in (own, *_bases(folder))} - {""}


def targets_of(folder: Path) -> set[str]:
    """What the models are called that the drafter in a folder was made for, in normal form."""
    own = normal(hub_id(folder) or folder.name)
    pairs = [pair.target for pair in published_pairs() if normal(pair.drafter) == own]
    return {normal(name) for name in (*pairs, *_bases(folder))} - {""}


def _bases(folder: Path) -> Iterator[str]:
    """Models that a card or a config names as what it was made from or for."""
    for content in (_card(folder / CARD), read_config(folder)):
        for key in BASES:
            yield from _texts(content.get(key))
        speculators = content.get("speculators_config")
        verifier = speculators.get("verifier") if isinstance(speculators, dict) else None
        yield from _texts(verifier.get("name_or_path") if isinstance(verifier, dict) else None)


def _texts(value: object) -> Iterable[str]:
    values = value if isinstance(value, list) else [value]
    return (each for each in values if isinstance(each, str) and each)


def _card(file: Path) -> Mapping[str, Any]:
    """The head of a model card; nothing where it cannot be read."""
    from huggingface_hub.repocard import metadata_load

    with suppress(Exception):  # YAML of anybody
        return metadata_load(file) or {}
    return {}
