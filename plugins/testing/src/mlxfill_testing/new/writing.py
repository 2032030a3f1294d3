"""Fills in the templates of a new plugin."""

from __future__ import annotations

import re
from importlib.metadata import version
from importlib.resources import files
from typing import TYPE_CHECKING

from mlxfill import InputError, PluginError, installed_plugin

if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.resources.abc import Traversable
    from pathlib import Path

PREFIX = "mlxfill-"
NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
LONGEST = 40
SUFFIX = ".j2"


def check_name(name: str) -> None:
    """Raise ``InputError`` unless ``name`` can be that of a new plugin."""
    if name.startswith(PREFIX):
        raise InputError(
            f"the name of a plugin leaves out {PREFIX!r}: use {name.removeprefix(PREFIX)!r}"
        )
    if not NAME.fullmatch(name) or len(name) > LONGEST:
        raise InputError(
            f"{name!r} is no name for a plugin: at most {LONGEST} lower-case letters and digits, "
            "words joined by '-', a letter first, such as 'spec-mine'"
        )
    if _is_installed(name):
        raise InputError(
            f"plugin {name!r} is installed already (see mlxfill plugins info {name}): choose"
            " another name"
        )


def _is_installed(name: str) -> bool:
    try:
        return installed_plugin(name) == name  # it knows names by their last words, too
    except PluginError:
        return False


def write(folder: Path, name: str, kind: str) -> list[Path]:
    """Write a plugin of this kind into a new folder.

    :returns: its files, the plugin's own module last.
    :raises InputError: the folder is there already, or cannot be made.
    """
    from jinja2 import Environment, StrictUndefined

    environment = Environment(  # noqa: S701 - Python and TOML, no HTML
        undefined=StrictUndefined, keep_trailing_newline=True
    )
    package = f"mlxfill_{name.replace('-', '_')}"
    words = {"name": name, "package": package, "core": _core_pin(), "kind": kind}
    try:
        folder.mkdir()
    except FileExistsError:
        raise InputError(f"{folder} is there already: choose another name, or move it") from None
    except OSError as error:
        raise InputError(f"{folder} cannot be made: {error.strerror}") from None
    written = []
    for part in ("common", kind):
        for path, template in _templates(files("mlxfill_testing.new") / "templates" / part):
            target = folder / path.replace("PACKAGE", package).removesuffix(SUFFIX)
            text = environment.from_string(template.read_text("utf-8")).render(words)
            _write(target, text)
            written.append(target)
    return sorted(written, key=lambda path: path.name == "plugin.py")


def _write(target: Path, text: str) -> None:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, "utf-8")
    except OSError as error:
        raise InputError(f"{target} cannot be written: {error.strerror or error}") from None


def _templates(folder: Traversable, inside: str = "") -> Iterator[tuple[str, Traversable]]:
    """The files below a folder with their paths."""
    for entry in sorted(folder.iterdir(), key=lambda each: each.name):
        path = f"{inside}{entry.name}"
        if entry.is_dir():
            yield from _templates(entry, f"{path}/")
        elif path.endswith(SUFFIX):
            yield path, entry


def _core_pin() -> str:
    """The minor version of the core that the plugin is written for."""
    major, minor, *_ = version("mlxfill").split(".")
    return f"mlxfill>={major}.{minor},<{major}.{int(minor) + 1}"
