from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen

from mlxfill import Policy, Proposal
from mlxfill_spec_ngram import NgramSettings, NgramSource, RuleGuesser, make_lookup


@frozen
class View:
    length: int = 0
    budget: int = 100

    def tail(self, n: int) -> Sequence[int]:
        raise AssertionError(n)


def source(prompt: Sequence[int]) -> NgramSource:
    lookup = make_lookup(NgramSettings())
    lookup.seed(prompt)
    return NgramSource(lookup)


def test_offers_what_followed_for_the_target_to_verify() -> None:
    assert source([1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 2]).propose(View()) == Proposal(
        ids=(3, 4, 5, 6), policy=Policy.VERIFY, origin="ngram", evidence=1
    )


def test_offers_nothing_where_nothing_repeats() -> None:
    assert source([1, 2, 3]).propose(View()) is None
    assert source([]).propose(View()) is None


def test_an_observed_token_counts_at_once() -> None:
    offering = source([1, 2, 3, 4, 5, 6])
    assert offering.propose(View()) is None
    offering.observe([9, 1])
    proposal = offering.propose(View())
    assert proposal is not None
    assert proposal.ids == (2, 3, 4, 5)
    offering.resolved(proposal, 0)
    offering.observe([2, 3])
    proposal = offering.propose(View())
    assert proposal is not None
    assert (proposal.ids[:2], proposal.evidence) == ((4, 5), 3)


def test_the_guesser_need_not_be_a_lookup() -> None:
    offering = NgramSource(RuleGuesser(lambda history: [len(history)] * 2))
    offering.observe([5, 5, 5])
    assert offering.propose(View()) == Proposal((3, 3), Policy.VERIFY, "ngram")
