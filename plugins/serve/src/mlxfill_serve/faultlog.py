"""What went wrong beside requests, for the operator."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mlxfill import Fault

MOST = 100
"""Different lines in the life of a server: what clients send decides how many there could be."""


class FaultLog:
    """Writes a line on standard error for each fault, the first time that it occurs."""

    def __init__(self) -> None:
        self._told: set[Fault] = set()

    def tell(self, faults: Iterable[Fault]) -> None:
        """Those of an engine, or of a request that has ended."""
        for fault in faults:
            if fault not in self._told and len(self._told) < MOST:
                self._told.add(fault)
                print(fault.line, file=sys.stderr, flush=True)  # noqa: T201
