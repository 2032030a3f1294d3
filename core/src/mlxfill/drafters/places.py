"""The folders in which a drafter for a model may lie."""

from __future__ import annotations

from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import frozen

from mlxfill.drafters.names import SNAPSHOTS, hub_id
from mlxfill.plugins import scan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mlxfill.plugins import PluginManager

IN_FOLDER, BESIDE = "in the model's folder", "beside the model"
BROUGHT, CACHED, PUBLISHED = "with a plugin", "in the hub cache", "published, not downloaded"
MOST = 1000
"""Folders beside a model that are looked into."""


@frozen
class Place:
    """A folder, what to write for it after ``--draft``, and where that is in words.

    ``folder``: None for what is not on this machine.
    """

    folder: Path | None
    name: str
    where: str


def places(plugins: PluginManager, target: Path | None) -> Iterator[Place]:
    """Folders beside the model, of plugins, and in the hub cache; each once, never its own."""
    seen = {target.resolve()} if target else set()
    found = (*_of_plugins(plugins), *(_beside(target) if target else ()), *_cached())
    for place in found:
        resolved = place.folder and place.folder.resolve()
        if resolved and resolved not in seen:
            seen.add(resolved)
            yield place


def _of_plugins(plugins: PluginManager) -> Iterator[Place]:
    for name in sorted(scan().models):
        with suppress(Exception):  # nobody asked for it
            folder = plugins.resolve_model(name)
            if folder is not None:
                yield Place(folder, name, BROUGHT)


def _beside(target: Path) -> Iterator[Place]:
    if target.parent.name == SNAPSHOTS:
        return
    with suppress(OSError):
        for folder in islice(sorted(target.parent.iterdir()), MOST):
            if (folder / "config.json").is_file():
                yield Place(folder, str(folder), BESIDE)


def cache_folder() -> Path:
    """Where the hub's downloads lie."""
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)


def _cached() -> Iterator[Place]:
    """The newest revision of each model in the hub cache."""
    with suppress(OSError):
        for model in sorted(cache_folder().glob("models--*")):
            folder = newest(model)
            if folder is not None:
                yield Place(folder, hub_id(folder), CACHED)


def newest(model: Path) -> Path | None:
    """The revision of a cached model that its main branch was when it was last downloaded.

    Where nothing says which one that was, the one that came last.
    """
    kept = [each for each in (model / SNAPSHOTS).glob("*") if (each / "config.json").is_file()]
    main = ""
    with suppress(OSError, UnicodeError):
        main = (model / "refs" / "main").read_text("utf-8").strip()
    return max(kept, key=lambda each: (each.name == main, each.stat().st_mtime), default=None)


def cached(name: str) -> Path | None:
    """The folder of ``OWNER/NAME`` in the hub cache; None where it is not there."""
    return newest(cache_folder() / f"models--{name.replace('/', '--')}")
