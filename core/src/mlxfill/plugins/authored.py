"""Plugins in the making: installed from a folder, so that their user is their author."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from traceback import extract_tb
from typing import TYPE_CHECKING

from mlxfill.installing import source_folder

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


def authors_cure(entry_point: EntryPoint, error: BaseException | None) -> str | None:
    """What the author of a plugin has to do about a mistake in it.

    :param error: what the plugin raised.
    :returns: None when the plugin came from an index: its user is not its author.
    """
    source = source_folder(entry_point.dist)
    if source is None:
        return None
    folder, editable = source
    if editable:
        return f"mend {_place(entry_point, error, folder)}"
    return f"mend it in {folder}, then: pip install -e {shlex.quote(str(folder))}"


def _place(entry_point: EntryPoint, error: BaseException | None, folder: Path) -> str:
    """The file, and the line where ``error`` has one."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}, line {error.lineno}"
    frames = extract_tb(error.__traceback__) if error else []
    own = [frame for frame in frames if Path(frame.filename).is_relative_to(folder)]
    if own:
        return f"{own[-1].filename}, line {own[-1].lineno}"
    return getattr(sys.modules.get(entry_point.module), "__file__", None) or str(folder)
