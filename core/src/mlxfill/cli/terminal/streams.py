"""Standard streams that whoever started the process has closed (``mlxfill ... >&-``)."""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper
from typing import Literal


def replace_closed() -> None:
    """Put a file in the place of each, as Python leaves None there.

    Standard input then is empty, what standard error is told is lost, and standard output takes
    nothing: the first thing written there is an error (``EBADF``), as it is for other programs.
    """
    if sys.stdin is None:
        sys.stdin = _nowhere(os.O_RDONLY, "r")
    if sys.stdout is None:
        sys.stdout = _nowhere(os.O_RDONLY, "w")
    if sys.stderr is None:
        sys.stderr = _nowhere(os.O_WRONLY, "w")


def _nowhere(access: int, mode: Literal["r", "w"]) -> TextIOWrapper:
    # The number that was closed is the lowest that is free, so no other file gets it.
    number = os.open(os.devnull, access)
    return open(number, mode, encoding="utf-8")  # noqa: PTH123
