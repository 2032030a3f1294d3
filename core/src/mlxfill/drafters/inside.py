"""The drafter that came with a model, in its own folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen

from mlxfill.loading.baked import baked_head
from mlxfill.plugins.faults import recorded

if TYPE_CHECKING:
    from pathlib import Path

    from mlxfill.contracts import DraftKind, Fault
    from mlxfill.plugins import PluginManager


@frozen
class Located:
    """A drafter that was found: plugin and kind that load it from ``folder``."""

    plugin: str
    kind: DraftKind
    folder: Path

    def told(self, model: Path) -> str:
        """What is said of it once it is loaded."""
        head = baked_head(model) if self.folder == model else None
        what = head.what if head else f"what lies in {self.folder}"
        return f"drafts with {what}, by the kind {self.kind.name!r}"


def bundled(
    plugins: PluginManager, model: Path, faults: list[Fault], name: str | None = None
) -> Located | None:
    """The head in a model's folder, if a plugin that is on knows its kind.

    :param name: a kind or plugin, where only its heads are wanted.
    """
    for plugin, kind in plugins.draft_kinds():
        apart = model / kind.subfolder if kind.subfolder else None
        places = [(apart, kind.detect), (model, kind.baked)]
        for place, lies in places if name in (None, kind.name, plugin) else ():
            if place and lies and place.is_dir():
                with recorded(plugin, "draft", faults):  # nobody asked for it
                    if lies(place):
                        return Located(plugin, kind, place)
    return None
