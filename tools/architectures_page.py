"""The tables of ``docs/architectures.md``, from tiny models of mlx-lm's files."""

from __future__ import annotations

from importlib.metadata import version
from itertools import chain
from typing import TYPE_CHECKING, Any

from mlx_lm.models.cache import CacheList
from mlx_lm.utils import MODEL_REMAPPING

from mlxfill.model.target import Target
from mlxfill.rewind.window import prove_rewind
from mlxfill.rows.proof import prove_rows
from mlxfill_testing import shared_model
from mlxfill_testing.architectures import ROUNDED_BY, UNEQUAL, UNTRIED, model_files
from pages import ROOT, row

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = ROOT / "docs/architectures.md"
KINDS = {
    "KVCache": ("keys and values", "cut"),
    "RotatingKVCache": ("sliding window", "refilled"),
    "ChunkedKVCache": ("chunks", "cut"),
    "ArraysCache": ("states", "replayed"),
}
"""Cache entries of mlx-lm: in words, and how they are taken back."""


def table() -> str:
    """Every model file of the installed mlx-lm."""
    head = row("model file", "caches", "taken back by being", "rows", "window and steps")
    lines = [head, row(*["---"] * 5), *map(line, model_files())]
    return "\n".join([f"mlx-lm {version('mlx-lm')}:", "", *lines])


def remapped() -> str:
    """Model types that mlx-lm reads with another file."""
    pairs = sorted(MODEL_REMAPPING.items())
    return ", ".join(f"`{name}` (as `{file}`)" for name, file in pairs)


def line(name: str) -> str:
    """What is so with one model file, as a row of the table."""
    if name in UNTRIED:
        return row(f"`{name}`", f"not tried: {UNTRIED[name]}", "", "", "")
    with Target(shared_model(name)) as target:
        kinds, ways = _caches(target)
        back = "" if prove_rewind(target) else ways
        together = "take turns" if prove_rows(target) else "shared"
    return row(f"`{name}`", kinds, back or "not at all", together, _windows(name))


def _caches(target: Target) -> tuple[str, str]:
    """Kinds of entries and how they are taken back, each once, in order."""
    kinds, ways = zip(*chain.from_iterable(map(_told, target.new_cache())), strict=True)
    return _each_once(kinds), _each_once(ways)


def _told(entry: Any) -> Iterator[tuple[str, str]]:  # noqa: ANN401 - of any class
    if isinstance(entry, CacheList):
        for part in entry.caches:
            yield from _told(part)
    else:
        name = type(entry).__name__
        yield KINDS.get(name, (f"its own `{name}`", "put back and replayed"))


def _each_once(words: tuple[str, ...]) -> str:
    return ", ".join(dict.fromkeys(words))


def _windows(name: str) -> str:
    if name in UNEQUAL:
        return f"differ: {UNEQUAL[name]}"
    causes = [cause for cause, names in ROUNDED_BY.items() if name in names]
    return f"rounded: {causes[0]}" if causes else "equal"


def names() -> list[str]:
    """The model files that the page names, in its order."""
    lines = PAGE.read_text("utf-8").splitlines()
    return [text.split("`")[1] for text in lines if text.startswith("| `")]
