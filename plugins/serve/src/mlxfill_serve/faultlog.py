"""What went wrong beside requests, for the operator."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mlxfill import Fault

MOST = 100
"""Different lines in the life of a server: what clients send decides how many there could be."""
_NUMBER = re.compile(r"\.\d+\.")


class FaultLog:
    """Writes a line on standard error for each fault, the first time that it occurs."""

    def __init__(self) -> None:
        self._told: set[Fault] = set()
        self._ignored: set[str] = set()

    def tell(self, faults: Iterable[Fault]) -> None:
        """Those of an engine, or of a request that has ended."""
        for fault in faults:
            if fault not in self._told and len(self._told) < MOST:
                self._told.add(fault)
                _say(fault.line)

    def ignored(self, names: Iterable[str]) -> None:
        """Fields of a request that nothing has heeded; those of a list by one name."""
        for name in names:
            place = _NUMBER.sub(".N.", name)
            if place not in self._ignored and len(self._ignored) < MOST:
                self._ignored.add(place)
                _say(f"a request holds {place}, which is ignored (strict in [plugins.serve])")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)  # noqa: T201
