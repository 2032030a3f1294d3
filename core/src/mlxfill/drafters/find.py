"""All drafters for a model, the most promising first."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from attrs import asdict, frozen

from mlxfill.drafters.fit import misfit, same_tokenizer
from mlxfill.drafters.inside import bundled
from mlxfill.drafters.names import names_of, normal, published_pairs, targets_of
from mlxfill.drafters.outlook import ASSUMED, expected_speedup, weights_bytes
from mlxfill.drafters.places import BESIDE, CACHED, IN_FOLDER, PUBLISHED, Place, places
from mlxfill.installing import brought_by
from mlxfill.loading.baked import baked_head
from mlxfill.loading.formats import MODEL, MTP, folder_format, head_format
from mlxfill.plugins.faults import recorded

if TYPE_CHECKING:
    from pathlib import Path

    from mlxfill.plugins import PluginManager
    from mlxfill.policy.cost import CostCurve


@frozen
class FoundDrafter:
    """A drafter for a model.

    ``method``: the kind that loads it, else its format; ``plugin``: whose kind that is, "" where
    none that is on has it; ``name``: what to write after ``--draft``, "" where that is not needed;
    ``folder``: None where it is not on this machine; ``size``: bytes of its weights, None where
    that is not known; ``misfit``: why it cannot serve the model, "" where nothing speaks against
    it; ``command``: what to type to draft with it; "" where it does not fit or nobody loads it.
    """

    method: str
    plugin: str
    name: str
    where: str
    folder: Path | None
    size: int | None
    misfit: str
    expected_speedup: float
    command: str

    @property
    def usable(self) -> bool:
        """Whether it can be mounted here and now."""
        return bool(self.plugin) and self.folder is not None and not self.misfit

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        folder = str(self.folder) if self.folder else None
        return {**asdict(self), "folder": folder, "usable": self.usable}


def find_drafters(
    plugins: PluginManager, name: str, target: Path | None, curve: CostCurve = ASSUMED
) -> list[FoundDrafter]:
    """The drafters of a model, those that can be used first, the most promising of them first.

    Folders are looked into, nothing is loaded or downloaded.

    :param name: what the user calls the model, for the commands; ``target``: its folder, None
        where it is only known by its hub id.
    """
    search = _Search(plugins, name, target, curve)
    found = [*search.inside(), *filter(None, map(search.judged, places(plugins, target)))]
    here = {normal(each.name) for each in found}
    found += [each for each in search.published() if normal(each.name) not in here]
    return sorted(
        found, key=lambda each: (not each.usable, -each.expected_speedup, each.size or 0, each.name)
    )


class _Search:
    def __init__(
        self, plugins: PluginManager, name: str, target: Path | None, curve: CostCurve
    ) -> None:
        self._plugins, self._name, self._target, self._curve = plugins, name, target, curve
        self._names = {normal(name)} | (names_of(target) if target else set())
        self._size = weights_bytes(target) if target else 0

    def inside(self) -> list[FoundDrafter]:
        """The head in the model's own folder."""
        if self._target is None:
            return []
        head = baked_head(self._target)
        located = bundled(self._plugins, self._target, [])
        if located is not None:
            owner, is_apart = (located.plugin, located.kind.name), located.folder != self._target
            size = weights_bytes(located.folder) if is_apart or not head else head.size
            return [self._made(Place(located.folder, "", IN_FOLDER), MTP, owner, size=size)]
        if head is None or not head.tensors:
            return []
        place = Place(self._target, "", IN_FOLDER)
        return [self._made(place, head_format(head), size=head.size)]

    def published(self) -> list[FoundDrafter]:
        """Those that the table of published pairs names."""
        return [
            self._made(Place(None, pair.drafter, PUBLISHED), pair.format)
            for pair in published_pairs()
            if normal(pair.target) in self._names
        ]

    def judged(self, place: Place) -> FoundDrafter | None:
        """The drafter in a folder; None where there is none that has to do with the model."""
        if place.folder is None:
            return None
        size = weights_bytes(place.folder)
        if self._size and size >= self._size:  # no drafter is as large as its model
            return None
        key = folder_format(place.folder).key
        if key == MODEL:
            return self._draft_model(place, place.folder, size)
        owner = self._owner(place.folder)
        if owner is None and not brought_by(f"draft-{key}"):
            return None
        targets = targets_of(place.folder)
        related = bool(targets & self._names)
        reason = "" if related or not targets else f"it is made for {', '.join(sorted(targets))}"
        if self._target is not None:
            reason = misfit(place.folder, self._target, key) or reason
        # What lies beside the model is told although it does not fit; in the cache lies anything.
        near = self._target is not None and place.where != CACHED
        told = related or (near and (not reason or place.where == BESIDE))
        return self._made(place, key, owner, size=size, reason=reason) if told else None

    def _draft_model(self, place: Place, folder: Path, size: int) -> FoundDrafter | None:
        """A smaller model with the same tokenizer."""
        if self._target is None or not size:
            return None
        if not same_tokenizer(folder, self._target) or misfit(folder, self._target, MODEL):
            return None
        return self._made(place, MODEL, self._owner(folder), size=size)

    def _owner(self, folder: Path) -> tuple[str, str] | None:
        """Plugin and name of the kind that claims a folder."""
        for plugin, kind in sorted(self._plugins.draft_kinds(), key=lambda each: each[1].fallback):
            with recorded(plugin, "draft", []):  # nobody asked for it
                if kind.needs_artifact and kind.detect(folder):
                    return plugin, kind.name
        return None

    def _made(
        self,
        place: Place,
        key: str,
        owner: tuple[str, str] | None = None,
        *,
        size: int | None = None,
        reason: str = "",
    ) -> FoundDrafter:
        plugin, method = owner or ("", key)
        if owner is None and not brought_by(f"draft-{key}"):
            reason = reason or "no plugin loads its format"
        missing = "" if owner else self._plugins.remedy(*brought_by(f"draft-{key}"))
        promised = expected_speedup(key, size or self._size // 10, self._size, self._curve)
        return FoundDrafter(
            method=method,
            plugin=plugin,
            name=place.name,
            where=place.where,
            folder=place.folder,
            size=size,
            misfit=reason,
            expected_speedup=round(promised, 2),
            command="" if reason else self._command(place.name, missing),
        )

    def _command(self, drafter: str, missing: str) -> str:
        draft = f" --draft {shlex.quote(drafter)}" if drafter else ""
        generate = f'mlxfill generate --model {shlex.quote(self._name)}{draft} "..."'
        return f"{missing}, then {generate}" if missing else generate
