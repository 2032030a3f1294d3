"""Where every short run of token ids stood before."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mlxfill_spec_ngram.settings import Match

_BITS = 21
"""Bits of one id in a packed run: ids up to 2,097,150; three of them fit a machine word."""


class SuffixIndex:
    """A history of ids, and one dict a run length from packed runs to what came next.

    ``lengths`` are the run lengths that are looked up, ascending; ``match`` says which earlier
    occurrence is kept.  A run enters only when the id after it is known, so the end of the
    history never finds itself.  Work per id: one dict entry a length, whatever the history.
    """

    __slots__ = ("_keep_first", "_mask", "_tables", "_tail", "history")

    def __init__(self, lengths: Sequence[int], match: Match) -> None:
        self.history: list[int] = []
        self._keep_first = match == "first"
        self._tables: tuple[tuple[dict[int, int], int, int], ...] = tuple(
            ({}, (1 << _BITS * length) - 1, length) for length in lengths
        )
        self._mask = self._tables[-1][1]
        # The newest ids, each plus one: zeros stand for the emptiness before the first id.
        self._tail = 0

    def append(self, token: int) -> None:
        """Add one id."""
        history, tail = self.history, self._tail
        position = len(history)
        if self._keep_first:
            for table, mask, _ in self._tables:
                table.setdefault(tail & mask, position)
        else:
            for table, mask, _ in self._tables:
                table[tail & mask] = position
        history.append(token)
        self._tail = (tail << _BITS | token + 1) & self._mask

    def extend(self, ids: Iterable[int]) -> None:
        """Add many ids at once, as ``append`` one by one would, several times as fast."""
        longest = self._tables[-1][2]
        start = max(len(self.history) - longest, 0)
        self.history += ids
        # Runs just before the new ids enter again, with what they had: no harm.
        runs = singles = [token + 1 for token in self.history[start:]]
        by_length = {1: singles}
        for length in range(2, longest + 1):
            runs = [
                run << _BITS | token
                for run, token in zip(runs, singles[length - 1 :], strict=False)
            ]
            by_length[length] = runs
        for table, _, length in self._tables:
            positions = range(start + length, len(self.history))
            if self._keep_first:
                _run(map(table.setdefault, by_length[length], positions))
            else:
                table.update(zip(by_length[length], positions, strict=False))
        self._tail = 0
        for token in singles[-longest:]:
            self._tail = self._tail << _BITS | token

    def find(self) -> tuple[int, int]:
        """Position after an earlier occurrence of the longest known run that ends the history,
        and the length of that run; ``(0, 0)`` when none is known.
        """
        tail, position, found = self._tail, 0, 0
        # Shortest first: where a run is unknown, all that end in it are.
        for table, mask, length in self._tables:
            known = table.get(tail & mask)
            if not known:
                break
            position, found = known, length
        return position, found


def _run(calls: Iterable[int]) -> None:
    """Take what a lazy ``map`` yields, at the speed of C."""
    deque(calls, maxlen=0)
