"""The proposal source: what stood before is offered again, for the target to verify."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from mlxfill import Policy, Proposal, TokenView

if TYPE_CHECKING:
    from mlxfill_spec_ngram.guesser import Guesser

ORIGIN: Final = "ngram"
"""The word for these tokens in results and colours."""

_VERIFY: Final = Policy.VERIFY  # an enum's own look-up would be a twentieth of a proposal's cost


class NgramSource:
    """Offers what its guesser guesses, at every token where it has a guess.

    The guesser's history is the prompt and every token observed.  How much of an offer is worth
    a window is the decode loop's to decide: it knows costs and acceptance.
    """

    name = ORIGIN

    def __init__(self, guesser: Guesser) -> None:
        self._guesser = guesser

    def propose(self, view: TokenView) -> Proposal | None:  # noqa: ARG002 - all was observed
        """Offer the guess, or None when there is none."""
        guesser = self._guesser
        ids = guesser.guess()
        if not ids:
            return None
        return Proposal(tuple(ids), _VERIFY, ORIGIN, evidence=guesser.evidence)

    def observe(self, ids: Sequence[int]) -> None:
        """Add tokens to the history."""
        self._guesser.extend(ids)

    def resolved(self, proposal: Proposal, accepted: int) -> None:
        """Nothing to learn that the observed tokens do not tell."""
