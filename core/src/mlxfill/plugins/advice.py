"""What to do about a plugin that is not there: a slip, one that is off, or one to install.

A command to install something names distributions of this project and no others, as the metadata of
the core list them: whoever mistypes a plugin's name must not be told to install what a stranger may
have published under it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlxfill.errors import PluginError
from mlxfill.hookspecs import PROJECT
from mlxfill.installing import extras, pip_install
from mlxfill.nearest import plugin_meant

if TYPE_CHECKING:
    from collections.abc import Iterable


def project_plugins(*, drafting: bool = False) -> list[str]:
    """The plugins of this project, or those of them that draft."""
    prefix = "draft-" if drafting else ""
    behind = (names for extra, names in extras().items() if extra.startswith(prefix))
    return sorted({name for names in behind for name in names})


def to_install(name: str) -> str:
    """The command that brings a plugin of this project."""
    return pip_install(f"{PROJECT}-{name}")


def to_switch_on(names: Iterable[str]) -> str:
    """What to do about installed plugins that are off."""
    return (
        f"{' and '.join(names)} is installed, but off: list it in [plugins] enabled or in --plugins"
    )


def missing(name: str, installed: Iterable[str]) -> PluginError:
    """The one line about a plugin that is not installed."""
    installed = sorted(installed)
    meant, ours = plugin_meant(name, installed), plugin_meant(name, project_plugins())
    if meant:
        cure = f"did you mean {meant!r}?"
    elif ours is None:
        cure = f"there are: {', '.join(installed)}" if installed else "none is"
    elif name in (ours, f"{PROJECT}-{ours}"):
        cure = f"try: {to_install(ours)}"
    else:
        cure = f"did you mean {ours!r}? try: {to_install(ours)}"
    return PluginError(f"plugin {name!r} is not installed; {cure}")
