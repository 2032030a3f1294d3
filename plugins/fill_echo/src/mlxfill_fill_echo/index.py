"""Where every run of k ids stood before, and how the text went on there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

_BITS = 21
"""Bits of one id in a packed run: ids up to 2,097,150."""
_BREAK = -1
"""Stands in the text between two texts.  Packed it is the zero that no id is."""


class RunIndex:
    """A growing text of ids, and for each run of ``k`` of them where it stood.

    Occurrences of one run are chained as in LZ77 compressors (Deutsch, RFC 1951, section 4): a
    dict holds the newest, ``_older[p]`` the one before the occurrence at ``p``.  A run enters only
    when the id after it is known, so the end of the text never finds itself.  Work per id:
    one dict entry, whatever the length of the text.  From ``limit`` ids on the text grows and
    the index does not.
    """

    __slots__ = ("_limit", "_mask", "_newest", "_older", "_parts", "ids", "k", "tail")

    def __init__(self, k: int, limit: int) -> None:
        self.k = k
        self.ids: list[int] = []
        # The newest k ids packed, each plus one: zeros stand for the emptiness before the first.
        self.tail = 0
        self._limit = limit
        self._mask = (1 << _BITS * k) - 1
        # Packed run -> position after its newest occurrence; 0, which follows no run, is none.
        self._newest: dict[int, int] = {}
        self._older: list[int] = []
        self._parts = 1

    def extend(self, ids: Iterable[int]) -> None:
        """Add ids to the text."""
        text, newest, older = self.ids, self._newest, self._older
        tail, mask, limit = self.tail, self._mask, self._limit
        for token in ids:
            at = len(text)
            if at < limit:
                older.append(newest.get(tail, 0))
                newest[tail] = at
            text.append(token)
            tail = (tail << _BITS | token + 1) & mask
        self.tail = tail

    def extend_apart(self, ids: Sequence[int]) -> None:
        """Add another text: no run and no continuation reaches from one into the other."""
        self.extend((_BREAK, *ids))
        self._parts += 1

    def cut(self, length: int) -> None:
        """Forget everything after the first ``length`` ids."""
        runs = list(self._runs(length))
        self.tail = runs[0]
        for run in reversed(runs[: max(len(self._older) - length, 0)]):
            before = self._older.pop()
            if before:
                self._newest[run] = before
            else:
                del self._newest[run]
        del self.ids[length:]

    def _runs(self, length: int) -> Iterator[int]:
        """The packed runs before each position from ``length`` to the end of the text."""
        tail = 0
        for token in self.ids[max(length - self.k, 0) : length]:
            tail = tail << _BITS | token + 1
        yield tail
        for token in self.ids[length:]:
            tail = (tail << _BITS | token + 1) & self._mask
            yield tail

    def after(self, run: int, most: int) -> list[int]:
        """Positions after the ``most`` newest occurrences of a packed run, newest first."""
        found: list[int] = []
        at = self._newest.get(run, 0)
        while at:
            found.append(at)
            if len(found) == most:
                break
            at = self._older[at]
        return found

    def stretches(self, places: Iterable[int], most: int) -> list[list[int]]:
        """Up to ``most`` ids from each of ``places`` on; fewer where their text ends."""
        text = self.ids
        found = [text[place : place + most] for place in places]
        if self._parts > 1:
            found = [s[: s.index(_BREAK)] if _BREAK in s else s for s in found]
        return found
