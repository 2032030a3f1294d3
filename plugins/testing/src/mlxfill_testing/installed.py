"""Distributions that seem installed, to test how plugins are found, refused and switched on.

::

    site = FakeSite(folder)                 # a folder on sys.path
    site.add("again", "MLXFILL_API = 2")    # now mlxfill-again 1.0 is installed
"""

from __future__ import annotations

import importlib
import shutil
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

HEADER = "import mlxfill\nMLXFILL_API = 2\n"
"""How the module of a working plugin begins."""


class FakeSite:
    """A folder with installed distributions, each one module and its metadata."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def add(  # noqa: PLR0913 - what metadata can say
        self,
        plugin: str,
        source: str = HEADER,
        *,
        distribution: str | None = None,
        version: str = "1.0",
        summary: str = "A fake plugin",
        commands: Sequence[str] = (),
        models: Sequence[str] = (),
        chat: Sequence[str] = (),
    ) -> str:
        """Install a distribution with one plugin; returns the name of its module.

        :param source: text of the module.
        :param distribution: its name, ``mlxfill-PLUGIN`` if None.
        :param commands: commands that it announces.
        :param models: model names that it announces.
        :param chat: options of ``mlxfill chat`` that it announces.
        """
        distribution = distribution or f"mlxfill-{plugin}"
        module = distribution.replace("-", "_").lower()
        groups = {
            "mlxfill": [plugin],
            "mlxfill.commands": commands,
            "mlxfill.models": models,
            "mlxfill.chat": chat,
        }
        info = self.folder / f"{module}-{version}.dist-info"
        info.mkdir()
        (self.folder / f"{module}.py").write_text(source, "utf-8")
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.4\nName: {distribution}\nVersion: {version}\n"
            f"Summary: {summary}\n\nName: no header any more\n",
            "utf-8",
        )
        (info / "entry_points.txt").write_text(
            "".join(
                f"[{group}]\n" + "".join(f"{name} = {module}\n" for name in names)
                for group, names in groups.items()
            ),
            "utf-8",
        )
        importlib.invalidate_caches()
        return module

    def remove(self, module: str) -> None:
        """Uninstall what ``add`` installed."""
        for info in self.folder.glob(f"{module}-*.dist-info"):
            shutil.rmtree(info)
        (self.folder / f"{module}.py").unlink()
        importlib.invalidate_caches()

    def imported(self) -> set[str]:
        """Modules of this folder that were imported."""
        inside = str(self.folder)
        files = {name: getattr(module, "__file__", None) for name, module in sys.modules.items()}
        return {name for name, file in files.items() if file and file.startswith(inside)}

    def forget(self) -> None:
        """Drop those modules, for the next test."""
        for name in self.imported():
            del sys.modules[name]
