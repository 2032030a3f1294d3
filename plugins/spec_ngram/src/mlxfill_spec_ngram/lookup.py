"""Guess how a history goes on, from how it went on before.

Prompt lookup after Saxena, "Prompt Lookup Decoding" (2023): the longest run of ids at the end of
the history that stood earlier is continued as it was then.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from mlxfill_spec_ngram.index import SuffixIndex

if TYPE_CHECKING:
    from mlxfill_spec_ngram.guesser import Guesser
    from mlxfill_spec_ngram.settings import NgramSettings

_SURE = 3
"""Matched ids that earn a draft of ``depth``, and after which no other match is looked for."""
_GROWTH = 3
"""Ids that a draft gains with each matched id."""
_REACH = 32
"""How far a found occurrence is compared backwards, in ids."""
_TRUSTED = 4
"""A match this long is worth resuming when it breaks, and is preferred to resuming."""
_NEARBY = 16
"""Ids around a break within which the lost match is resumed."""


class FixedLookup:
    """The published rule: ``depth`` ids after the occurrence that the index names."""

    __slots__ = ("_depth", "_index", "evidence", "history")

    def __init__(self, settings: NgramSettings) -> None:
        self._index = SuffixIndex(settings.lengths, settings.match)
        self._depth = settings.depth
        self.history = self._index.history
        self.evidence = 0

    @property
    def state(self) -> tuple[int, ...]:
        """Nothing besides the history."""
        return ()

    def resume(self, state: tuple[int, ...]) -> None:
        """Nothing to remember."""

    def seed(self, ids: Iterable[int]) -> None:
        """Add ids of a prompt."""
        self._index.extend(ids)

    def extend(self, ids: Iterable[int]) -> None:
        """Add ids one by one."""
        for token in ids:
            self._index.append(token)

    def guess(self) -> Sequence[int]:
        """Up to ``depth`` ids; fewer where the history ends."""
        start, self.evidence = self._index.find()
        return self.history[start : start + self._depth] if start else ()


class FollowingLookup:
    """Follows an occurrence for as long as it predicts right, and believes it the more.

    A draft has ``depth`` ids for a match of three, and three more or fewer for each id more or
    fewer, up to ``max_depth``.  Text that runs into its own end is a loop and goes
    on as one.  Where a long match breaks (a renamed variable, a changed value) it is resumed
    a few ids further on, unless another long match is found.
    """

    __slots__ = (
        "_after_lost",
        "_depth",
        "_index",
        "_longest",
        "_lost",
        "_lost_until",
        "_max_depth",
        "_next",
        "evidence",
        "history",
    )

    def __init__(self, settings: NgramSettings) -> None:
        self._index = SuffixIndex(settings.lengths, settings.match)
        self._depth = settings.depth
        self._max_depth = settings.max_depth
        self._longest = settings.lengths[-1]
        self.history = self._index.history
        # Where the followed occurrence goes on (0: none), and how many ids it agrees with.
        self._next = 0
        self.evidence = 0
        # Where a long match broke, and the history's length from which on it may not be resumed.
        self._lost = 0
        self._lost_until = 0
        # The ids from there on, and where the history goes on after each.
        self._after_lost: dict[int, int] = {}

    @property
    def state(self) -> tuple[int, ...]:
        """Which occurrence is followed for how long, and where a long match broke, until when."""
        return (self._next, self.evidence, self._lost, self._lost_until)

    def resume(self, state: tuple[int, ...]) -> None:
        """Follow that occurrence again."""
        self._next, self.evidence, self._lost, self._lost_until = state
        broke_at = max(self._lost_until - _NEARBY - 1, 0)
        if min(state) < 0 or max(self._next, self._lost, broke_at) > len(self.history):
            raise ValueError(f"{state} lies outside a history of {len(self.history)} ids")
        self._expect_return(self.history[self._lost : min(self._lost + _NEARBY, broke_at)])

    def seed(self, ids: Iterable[int]) -> None:
        """Add ids of a prompt: the next guess starts afresh."""
        self._index.extend(ids)
        self._next = self.evidence = self._lost_until = 0

    def extend(self, ids: Iterable[int]) -> None:
        """Add ids one by one, and follow the occurrence found last."""
        history, append = self.history, self._index.append
        for token in ids:
            at = self._next
            if at:
                if history[at] == token:
                    self._next = at + 1
                    self.evidence += 1
                else:
                    self._leave(at)
            append(token)

    def guess(self) -> Sequence[int]:
        """As many ids as the match deserves, none when even the newest id is new."""
        if self.evidence < _SURE:
            self._look_up()
        start, length = self._next, self.evidence
        if not start:
            return ()
        depth = self._depth + _GROWTH * (length - _SURE)
        if depth > self._max_depth:
            depth = self._max_depth
        elif depth < 1:
            depth = 1
        draft = self.history[start : start + depth]
        if len(draft) < depth:
            draft = (draft * (depth // len(draft) + 1))[:depth]
        return draft

    def _leave(self, at: int) -> None:
        """The id after the followed occurrence came out different."""
        if self.evidence >= _TRUSTED:
            self._lost = at
            self._lost_until = len(self.history) + _NEARBY + 1
            self._expect_return(self.history[at : at + _NEARBY])
        self._next = self.evidence = 0

    def _expect_return(self, nearby: Sequence[int]) -> None:
        """The lost match may be resumed after one of the ids ``nearby``, which stand there."""
        following = range(self._lost + len(nearby), self._lost, -1)
        self._after_lost = dict(zip(reversed(nearby), following, strict=True))

    def _look_up(self) -> None:
        start, length = self._index.find()
        if length == self._longest:
            length = self._matched(start, length)
        if length < _TRUSTED and len(self.history) < self._lost_until:
            start, length = self._resumed(start, length)
        self._next, self.evidence = start, length

    def _matched(self, start: int, length: int) -> int:
        """How many ids before ``start`` equal the end of the history, ``length`` at least."""
        history = self.history
        most = min(start, _REACH)
        while length < most and history[start - 1 - length] == history[-1 - length]:
            length += 1
        return length

    def _resumed(self, start: int, length: int) -> tuple[int, int]:
        """Where the lost match goes on rather than ``start``, found by the newest id.

        A newest id that stood nowhere is taken to replace the one that was expected.
        """
        resumed = self._after_lost.get(self.history[-1])
        if resumed:
            return resumed, self._matched(resumed, 1)
        return (start, length) if start else (self._lost + 1, 1)


def make_lookup(settings: NgramSettings) -> Guesser:
    """The guesser that the settings ask for, with an empty history."""
    return FollowingLookup(settings) if settings.adaptive else FixedLookup(settings)
