"""The folder of a model that a user named."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from mlxfill.errors import ModelNotFoundError
from mlxfill.loading.model import find_model

if TYPE_CHECKING:
    import os
    from pathlib import Path

    from mlxfill.contracts import Fault
    from mlxfill.plugins import PluginManager


def find(plugins: PluginManager, name: str | os.PathLike[str]) -> Path:
    """Where it lies, by ``find_model``, which asks the plugins.

    :raises ModelNotFoundError: nowhere; tells also which plugin failed when it was asked.
    """
    faults: list[Fault] = []
    try:
        return find_model(str(name), partial(plugins.resolve_model, faults=faults))
    except ModelNotFoundError as error:
        failed = [f"; plugin {each.plugin!r} failed: {each.message}" for each in faults]
        raise ModelNotFoundError(f"{error}{''.join(failed)}") from error
    finally:
        plugins.faults += faults
