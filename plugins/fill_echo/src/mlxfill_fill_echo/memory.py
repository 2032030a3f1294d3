"""What one session has said so far."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mlxfill_fill_echo.index import RunIndex

if TYPE_CHECKING:
    from mlxfill_fill_echo.settings import EchoSettings

_STEP = 1024


class Memory:
    """The text that the model has before it, and what earlier requests of the session had.

    ``live``: prompt and reply of the newest request.  ``past``: what a later prompt left out
    again, such as reasoning that the template drops.  It is apart, because much of it is
    the live text in another rendering: two of a kind that prove nothing.
    """

    def __init__(self, settings: EchoSettings) -> None:
        self._k, self._limit = settings.k, settings.index_max
        self.live, self.past = self._empty(), self._empty()

    def _empty(self) -> RunIndex:
        return RunIndex(self._k, self._limit)

    def __len__(self) -> int:
        return len(self.live.ids) + len(self.past.ids)

    def begin(self, prompt: Sequence[int]) -> None:
        """A request opens: its prompt becomes the live text; only what is new is read."""
        kept = _shared(self.live.ids, prompt)
        if kept < len(self.live.ids):
            self._retire(kept)
        self.live.extend(prompt[kept:])

    def _retire(self, kept: int) -> None:
        """Move all but the first ``kept`` ids to the past, with the run that led up to them."""
        left = self.live.ids[max(kept - self._k, 0) :]
        self.live.cut(kept)
        if len(self.past.ids) + len(left) > self._limit:
            self.past = self._empty()  # the newest is the likeliest to come again
        self.past.extend_apart(left)

    def handed_over(self) -> Memory:
        """All that is known here, in a new memory; this one is empty from now on."""
        heir = Memory.__new__(Memory)
        heir._k, heir._limit = self._k, self._limit  # noqa: SLF001 - one of its own kind
        heir.live, heir.past = self.live, self.past
        self.live, self.past = self._empty(), self._empty()
        return heir


def _shared(known: Sequence[int], ids: Sequence[int]) -> int:
    """Length of the common beginning, compared in steps at the speed of C."""
    end = min(len(known), len(ids))
    for start in range(0, end, _STEP):
        stop = min(start + _STEP, end)
        if list(known[start:stop]) != list(ids[start:stop]):
            return next(at for at in range(start, stop) if known[at] != ids[at])
    return end
