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
RULE = "|---|---|---|---|---|"
KINDS = {
    "KVCache": ("keys and values", "cut"),
    "RotatingKVCache": ("sliding window", "refilled"),
    "ChunkedKVCache": ("chunks", "cut"),
    "ArraysCache": ("states", "replayed"),
}
"""Cache entries of mlx-lm: in words, and how they are taken back."""


def table() -> str:
    """Every model file of the installed mlx-lm, those together of which the same is so."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for name in model_files():
        alike.setdefault(facts(name), []).append(f"`{name}`")
    head = row("caches", "taken back by being", "rows", "window and steps", "model files")
    lines = [row(*cells, ", ".join(names)) for cells, names in sorted(alike.items())]
    return "\n".join([f"mlx-lm {version('mlx-lm')}:", "", head, RULE, *lines])


def remapped() -> str:
    """Model types that mlx-lm reads with another file."""
    pairs = sorted(MODEL_REMAPPING.items())
    return ", ".join(f"`{name}` (as `{file}`)" for name, file in pairs)


def facts(name: str) -> tuple[str, ...]:
    """What is so with one model file, as the cells of the table."""
    if name in UNTRIED:
        return (f"not tried: {UNTRIED[name]}", "", "", "")
    with Target(shared_model(name)) as target:
        kinds, ways = _caches(target)
        back = "" if prove_rewind(target) else ways
        together = "take turns" if prove_rows(target) else "shared"
    return (kinds, back or "not at all", together, _windows(name))


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


def said() -> dict[str, tuple[str, ...]]:
    """What the page says of each model file."""
    rows = (line for line in PAGE.read_text("utf-8").splitlines() if line.endswith("` |"))
    return {name: cells for cells, names in map(_read, rows) for name in names}


def _read(line: str) -> tuple[tuple[str, ...], list[str]]:
    *cells, names = (cell.strip() for cell in line.strip("|").split("|"))
    return tuple(cells), names.strip("`").split("`, `")
