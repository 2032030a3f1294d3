"""What the checks need and the core itself does not: the extra ``testing``."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from mlxfill.errors import MlxfillError
from mlxfill.installing import pip_install


def needed(module: str) -> Any:  # noqa: ANN401 - a module of another distribution
    """Import a module of the extra.

    :raises MlxfillError: it is not installed; names the command.
    """
    try:
        return import_module(module)
    except ImportError as error:
        name = module.partition(".")[0]
        cure = pip_install("mlxfill", extra="testing")
        raise MlxfillError(f"the checks need {name}: {cure}") from error
