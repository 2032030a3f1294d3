"""Processes that are forked from one that has computed.

mlx computes in threads of its own, which no fork takes along: the first thing that is computed in
such a process is waited for without an end.
"""

from __future__ import annotations

import os

from attrs import define

from mlxfill.errors import InputError


@define
class _Process:
    """``computes``: there are threads of mlx; ``forked``: there were, where it came from."""

    computes: bool = False
    forked: bool = False

    def fork(self) -> None:
        self.forked = self.forked or self.computes


_HERE = _Process()
if hasattr(os, "register_at_fork"):  # not on Windows, which forks nothing
    os.register_at_fork(after_in_child=_HERE.fork)


def check_process() -> None:
    """What follows computes.  Raises ``InputError`` where that would never end."""
    if _HERE.forked:
        raise InputError(
            "this process was forked from one that had computed with mlx, which cannot compute in"
            " both: start it with 'spawn' (multiprocessing.get_context), or fork before the model"
            " is loaded"
        )
    _HERE.computes = True
