"""The proposal source: what stood earlier in the session is offered again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from mlxfill import Policy, Proposal, TokenView
from mlxfill_fill_echo.acceptance import Acceptance
from mlxfill_fill_echo.continuation import common

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from mlxfill_fill_echo.index import RunIndex
    from mlxfill_fill_echo.memory import Memory
    from mlxfill_fill_echo.settings import EchoSettings

ORIGIN: Final = "echo"
"""The word for these tokens in results and colours."""

_FEWEST = 2
"""Ids that make a proposal, and places that make a pattern."""
_REACH = 48
"""How far back a match is followed, in ids."""


class EchoSource:
    """Offers how the run of ``k`` ids at the end of the session went on earlier.

    All nearest earlier places are asked, and the offer ends where they fork, or with a delimiter.
    What the text before the model does not know is looked up in what earlier requests of the
    session left behind.
    """

    def __init__(
        self, memory: Memory, settings: EchoSettings, delimiters: AbstractSet[int]
    ) -> None:
        self._memory, self._settings, self._delimiters = memory, settings, delimiters
        self._occurrences = settings.occurrences
        self._acceptance = Acceptance()
        self.counts = {"branch_stops": 0}

    def propose(self, view: TokenView) -> Proposal | None:  # noqa: ARG002 - all was observed
        """Offer what followed, or None where nothing did or all places differ."""
        live = self._memory.live
        places = live.after(live.tail, self._occurrences)
        if places:
            return self._offer(live, places, may_assert=self._settings.assert_)
        past = self._memory.past
        places = past.after(live.tail, self._occurrences)
        return self._offer(past, places, may_assert=False) if places else None

    def _offer(self, index: RunIndex, places: list[int], *, may_assert: bool) -> Proposal | None:
        found = common(index.stretches(places, self._settings.max_span), self._delimiters)
        ids, forked = tuple(found.ids), found.forked
        if len(ids) < _FEWEST:
            return None
        # Nothing forks before a closing delimiter.  One earlier place is a copy, not a pattern: it
        # may replay another role's turn.
        if may_assert and found.closed and found.agreed >= _FEWEST:
            policy = Policy.ASSERT
            self._acceptance.drop()
        else:
            policy = Policy.VERIFY
            length = self._acceptance.length()
            if length < len(ids):
                ids, forked = ids[:length], False
            self._acceptance.follow(ids)
        self.counts["branch_stops"] += forked
        return Proposal(
            ids,
            policy,
            ORIGIN,
            delimiter_bound=True,
            evidence=self._matched(index.ids, places[0]),
        )

    def _matched(self, source: list[int], place: int) -> int:
        """How many ids before ``place`` equal those at the end of the session."""
        text, length = self._memory.live.ids, self._settings.k
        most = min(place, len(text), _REACH)
        if source[place - most : place] == text[len(text) - most :]:
            return most  # a long copy, told at the speed of C
        while length < most and source[place - 1 - length] == text[-1 - length]:
            length += 1
        return length

    def observe(self, ids: Sequence[int]) -> None:
        """Add tokens to the memory."""
        self._memory.live.extend(ids)
        self._acceptance.see(ids)

    def resolved(self, proposal: Proposal, accepted: int) -> None:
        """Nothing to learn that the observed tokens do not tell better."""
