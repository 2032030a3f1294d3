"""How far offers have held lately, and so how long the next one should be."""

from __future__ import annotations

from collections.abc import Sequence

_START = 16.0
_LEAST, _MOST = 4, 128
"""Bounds of an offer: short ones show when the text begins to repeat again."""
_FOLLOW = 0.4
"""Weight of the newest offer in the running length."""
_MORE = 2.0
"""An offer that held whole is taken for one that would have held for this much longer."""


class Acceptance:
    """Follows one offer at a time against the text that really came.

    The decode loop may judge less of an offer than was offered, often only the first id;
    comparing with the text itself tells how far it would have held.
    """

    __slots__ = ("_at", "_length", "_offered")

    def __init__(self) -> None:
        self._length = _START
        self._offered: Sequence[int] = ()
        self._at = 0

    def length(self) -> int:
        """How long an offer should be now, in ids."""
        return round(self._length)

    def follow(self, ids: Sequence[int]) -> None:
        """Compare what comes next with this offer, unless another is still followed."""
        if not self._offered:
            self._offered, self._at = ids, 0

    def drop(self) -> None:
        """Follow nothing: what comes next is injected, not chosen."""
        self._offered = ()

    def see(self, ids: Sequence[int]) -> None:
        """Ids that entered the session."""
        for token in ids:
            if not self._offered:
                return
            if self._offered[self._at] != token:
                self._learn(self._at)
                return
            self._at += 1
            if self._at == len(self._offered):
                self._learn(max(_MORE * self._at, self._length))
                return

    def _learn(self, held: float) -> None:
        self._offered = ()
        length = self._length + _FOLLOW * (held - self._length)
        self._length = min(max(length, _LEAST), _MOST)
