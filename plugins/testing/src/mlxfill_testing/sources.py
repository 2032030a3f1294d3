"""A proposal source that follows a script."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import define, field

from mlxfill import Policy, Proposal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlxfill import Request, TokenView
    from mlxfill_testing.script import Script

TAIL = 4
"""Newest tokens by which a view is compared with what was observed."""


@define
class Outcome:
    """What became of a proposal."""

    proposal: Proposal
    accepted: int


@define(kw_only=True)
class ScriptedSource:
    """Offers what its script says, in spans of random length, and notes what it is told.

    ``chance``: how often it offers at all.  ``seen``: the session as this source was told of it.
    ``outcomes``: every proposal that was resolved.  ``offered``: every proposal that was made.
    """

    request: Request
    script: Script
    longest: int = 8
    policy: Policy = Policy.VERIFY
    chance: float = 1.0
    delimiter_bound: bool = False
    origin: str = "scripted"
    seen: list[int] = field(factory=list)
    offered: list[Proposal] = field(factory=list)
    outcomes: list[Outcome] = field(factory=list)

    def __attrs_post_init__(self) -> None:
        self.seen.extend(self.request.prompt_ids)

    def observe(self, ids: Sequence[int]) -> None:
        """Note tokens that entered."""
        self.seen.extend(ids)

    def propose(self, view: TokenView) -> Proposal | None:
        """2 to ``longest`` ids of the script."""
        tail = list(view.tail(TAIL))
        if tail != self.seen[-TAIL:] or view.length != len(self.seen):
            message = f"the view ends in {tail}, what was observed in {self.seen[-TAIL:]}"
            raise AssertionError(message)
        rng = self.script.random
        if rng.random() >= self.chance:
            return None
        ids = self.script.guess(view.length, rng.randint(2, self.longest))
        bound = self.delimiter_bound
        proposal = Proposal(tuple(ids), self.policy, self.origin, delimiter_bound=bound)
        self.offered.append(proposal)
        return proposal

    def resolved(self, proposal: Proposal, accepted: int) -> None:
        """Note the outcome."""
        self.outcomes.append(Outcome(proposal, accepted))
