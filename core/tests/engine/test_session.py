"""The table of sources: who is asked, what is cut, who learns what."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxfill import Fault, Policy, Proposal
from mlxfill.policy.acceptance import AcceptanceStats
from mlxfill.proposals.session import Rules, Session, SourceState

if TYPE_CHECKING:
    from collections.abc import Sequence

EOS, QUOTE, BRACE = 0, 20, 21
VOCABULARY = 64
PROMPT = [5, 6, 7]


class Asked:
    """Offers what it is given, one a time."""

    def __init__(self, *proposals: Proposal | None, name: str = "asked") -> None:
        self.name = name
        self.left = list(proposals)
        self.observed: list[int] = []
        self.outcomes: list[tuple[Proposal, int]] = []
        self.asked = 0

    def propose(self, view: Any) -> Proposal | None:  # noqa: ARG002
        self.asked += 1
        return self.left.pop(0) if self.left else None

    def observe(self, ids: Sequence[int]) -> None:
        self.observed += ids

    def resolved(self, proposal: Proposal, accepted: int) -> None:
        self.outcomes.append((proposal, accepted))


def session(
    *sources: Any,
    budget: int = 100,
    trusted: bool = True,
    faults: list[Fault] | None = None,
    **rules: Any,
) -> Session:
    settled = {
        "vocab_size": VOCABULARY,
        "eos": frozenset({EOS}),
        "delimiters": frozenset({QUOTE, BRACE}),
        "max_span": 16,
        "verify_supported": True,
        **rules,
    }
    seats = [SourceState(f"plugin-{i}", source, trusted) for i, source in enumerate(sources)]
    note = (faults if faults is not None else []).append
    return Session(list(PROMPT), budget, Rules(**settled), seats, note)


def verify(*ids: int, **more: Any) -> Proposal:
    return Proposal(ids, Policy.VERIFY, "test", **more)


def sure(*ids: int, **more: Any) -> Proposal:
    return Proposal(ids, Policy.ASSERT, "test", **more)


def only_offer(proposal: Proposal, **rules: Any) -> tuple[tuple[int, ...], Policy] | None:
    """What the clamps make of a proposal."""
    source = Asked(proposal)
    offer = session(source, **rules).ask()
    if offer is None:
        assert source.outcomes == [(proposal, 0)]
        return None
    assert source.outcomes == []
    return offer.ids, offer.policy


def test_sources_are_told_of_tokens_and_never_of_none() -> None:
    class Strict(Asked):
        def observe(self, ids: Sequence[int]) -> None:
            super().observe([ids[0], *ids[1:]])

    source, faults = Strict(), list[Fault]()
    held = session(source, faults=faults)
    held.add([9, 8])
    held.add([])
    assert (source.observed, faults, held.tokens) == ([9, 8], [], [*PROMPT, 9, 8])


# --- clamps ----------------------------------------------------------------------------


def test_a_proposal_is_cut_before_the_first_end() -> None:
    assert only_offer(verify(9, 8, EOS, 7)) == ((9, 8), Policy.VERIFY)
    assert only_offer(sure(9, 8, 7, EOS)) == ((9, 8, 7), Policy.ASSERT)
    assert only_offer(sure(9, EOS, 8, 7)) is None
    assert only_offer(sure(EOS, 9, 8, 7)) is None


def test_only_copied_spans_are_cut_after_a_delimiter() -> None:
    assert only_offer(verify(9, 8, QUOTE, 7)) == ((9, 8, QUOTE, 7), Policy.VERIFY)
    assert only_offer(verify(9, 8, QUOTE, 7, delimiter_bound=True)) == (
        (9, 8, QUOTE),
        Policy.VERIFY,
    )
    assert only_offer(sure(9, QUOTE, BRACE, 7, delimiter_bound=True)) == (
        (9, QUOTE),
        Policy.ASSERT,
    )
    assert only_offer(sure(QUOTE, 9, 8, delimiter_bound=True)) is None


def test_longest_span_and_budget_cut() -> None:
    assert only_offer(verify(*range(1, 30)), max_span=4) == ((1, 2, 3, 4), Policy.VERIFY)
    assert only_offer(verify(*range(1, 30)), budget=3) == ((1, 2, 3), Policy.VERIFY)
    assert only_offer(verify(1, 2, 3), budget=1) is None
    assert only_offer(verify(1)) is None
    assert only_offer(verify()) is None


def test_a_copied_assert_that_a_cut_leaves_open_is_verified() -> None:
    """It was sure up to a delimiter; short of one it is only likely."""
    assert only_offer(sure(9, 8, 7, QUOTE, delimiter_bound=True), max_span=3) == (
        (9, 8, 7),
        Policy.VERIFY,
    )
    assert only_offer(sure(9, 8, 7, QUOTE, delimiter_bound=True), budget=2) == (
        (9, 8),
        Policy.VERIFY,
    )
    assert only_offer(sure(9, 8, EOS, QUOTE, delimiter_bound=True)) == ((9, 8), Policy.VERIFY)
    whole = sure(9, 8, 7, QUOTE, delimiter_bound=True)
    assert only_offer(whole, max_span=4) == ((9, 8, 7, QUOTE), Policy.ASSERT)
    longer = sure(9, 8, 7, QUOTE, 6, delimiter_bound=True)
    assert only_offer(longer) == ((9, 8, 7, QUOTE), Policy.ASSERT)


@pytest.mark.parametrize("count", [3, 300])
def test_a_copied_assert_that_is_not_cut_stays_sure(count: int) -> None:
    """Where it ends is its source's claim, delimiter or not."""
    whole = sure(*[9] * count, delimiter_bound=True)
    assert only_offer(whole, max_span=count, budget=count) == (whole.ids, Policy.ASSERT)


def test_a_budget_cut_leaves_a_scaffold_sure() -> None:
    assert only_offer(sure(9, QUOTE, 8, 7), budget=3) == ((9, QUOTE, 8), Policy.ASSERT)


def test_asserting_is_a_privilege() -> None:
    assert only_offer(sure(9, 8), trusted=False) == ((9, 8), Policy.VERIFY)
    assert only_offer(sure(9, 8), verify_only=True) == ((9, 8), Policy.VERIFY)
    assert only_offer(sure(9, 8)) == ((9, 8), Policy.ASSERT)


def test_what_cannot_be_verified_is_dropped_and_counted() -> None:
    source = Asked(verify(9, 8), sure(7, 6), verify(5, 4))
    table = session(source, verify_supported=False)
    assert table.ask() is None
    offer = table.ask()
    assert offer is not None
    assert offer.policy is Policy.ASSERT
    table.settle(2, 2)
    assert table.ask() is None
    assert table.counts["verify_unsupported"] == 2
    assert [accepted for _, accepted in source.outcomes] == [0, 2, 0]


@given(
    proposal=st.builds(
        Proposal,
        st.lists(st.integers(0, VOCABULARY - 1), max_size=24).map(tuple),
        st.sampled_from(Policy),
        st.just("test"),
        delimiter_bound=st.booleans(),
    ),
    trusted=st.booleans(),
    budget=st.integers(0, 30),
    max_span=st.integers(2, 20),
)
def test_what_is_offered_is_always_a_legal_beginning(
    proposal: Proposal, *, trusted: bool, budget: int, max_span: int
) -> None:
    made = only_offer(proposal, budget=budget, max_span=max_span, trusted=trusted)
    if made is None:
        return
    kept, settled = made
    assert kept == proposal.ids[: len(kept)]
    assert 2 <= len(kept) <= min(budget, max_span)
    assert EOS not in kept
    assert settled in {proposal.policy, Policy.VERIFY}
    if settled is Policy.ASSERT:
        assert trusted
        assert not proposal.delimiter_bound or kept == proposal.ids or kept[-1] in {QUOTE, BRACE}
    if proposal.delimiter_bound:
        assert not {QUOTE, BRACE} & set(kept[:-1])


# --- order and outcomes -----------------------------------------------------------------


def test_the_first_source_that_offers_wins_and_the_others_are_not_asked() -> None:
    silent, first, second = Asked(None), Asked(verify(1, 2)), Asked(verify(3, 4))
    table = session(silent, first, second)
    offer = table.ask()
    assert offer is not None
    assert offer.ids == (1, 2)
    assert (silent.asked, first.asked, second.asked) == (1, 1, 0)


def test_a_proposal_that_is_cut_to_nothing_gives_way_to_the_next_source() -> None:
    first, second = Asked(verify(EOS, 2)), Asked(verify(3, 4))
    offer = session(first, second).ask()
    assert offer is not None
    assert offer.ids == (3, 4)
    assert first.outcomes == [(verify(EOS, 2), 0)]


def test_an_outcome_is_told_once() -> None:
    source = Asked(verify(1, 2, 3))
    table = session(source)
    assert table.ask() is not None
    table.settle(2, 3)
    table.settle(1, 1)
    table.settle(0, 0)
    assert source.outcomes == [(verify(1, 2, 3), 2)]


def test_every_source_observes_every_token_in_order() -> None:
    one, two = Asked(), Asked()
    table = session(one, two, budget=9)
    assert not table.complete()
    for ids in ([1], [2, 3, 4], [5]):
        table.add(ids)
    assert one.observed == two.observed == [1, 2, 3, 4, 5]
    assert table.view.length == len(PROMPT) + 5
    assert table.view.budget == 4
    assert list(table.view.tail(1)) == [5]
    assert list(table.view.tail(2)) == [4, 5]
    assert list(table.view.tail(0)) == list(table.view.tail(-2)) == []
    assert list(table.view.tail(99)) == [*PROMPT, 1, 2, 3, 4, 5]


def test_a_source_cannot_change_the_session_through_what_it_sees() -> None:
    class Greedy(Asked):
        def propose(self, view: Any) -> None:
            view.tail(2)[:] = [0, 0]
            with pytest.raises(AttributeError):
                view.budget = 1 << 30

        def observe(self, ids: Sequence[int]) -> None:
            ids += [1, 2, 3]  # type: ignore[operator]
            getattr(ids, "clear", list)()

    faults: list[Fault] = []
    other = Asked()
    table = session(Greedy(), other, budget=9, faults=faults)
    entered = [8, 9]
    table.ask()
    table.add(entered)
    assert entered == [8, 9]
    assert table.tokens == [*PROMPT, 8, 9]
    assert other.observed == [8, 9]
    assert table.view.budget == 7


def test_near_is_asked_of_those_that_have_it() -> None:
    class Near(Asked):
        answer = False

        def near(self) -> bool:
            return self.answer

    near = Near()
    table = session(Asked(), near)
    assert not table.near()
    near.answer = True
    assert table.near()


# --- sources that lie --------------------------------------------------------------------


class Raises(Asked):
    """Raises in the method that is named."""

    def __init__(self, where: str, *proposals: Proposal) -> None:
        super().__init__(*proposals)
        self.where = where

    def _maybe(self, where: str) -> None:
        if where == self.where:
            raise RuntimeError("two\nlines")

    def propose(self, view: Any) -> Proposal | None:
        self._maybe("propose")
        return super().propose(view)

    def observe(self, ids: Sequence[int]) -> None:
        self._maybe("observe")
        super().observe(ids)

    def resolved(self, proposal: Proposal, accepted: int) -> None:
        self._maybe("resolved")
        super().resolved(proposal, accepted)

    def near(self) -> bool:
        self._maybe("near")
        return False


@pytest.mark.parametrize("where", ["propose", "observe", "resolved", "near"])
def test_a_source_that_raises_leaves_the_table(where: str) -> None:
    faults: list[Fault] = []
    source, other = Raises(where, verify(1, 2), verify(3, 4)), Asked()
    table = session(source, other, faults=faults)
    for _ in range(3):
        if table.ask() is not None:
            table.settle(1, 2)
        table.add([9])
        table.near()
    raised = Raises._maybe.__code__.co_firstlineno + 2
    message = f"RuntimeError: two lines (test_session.py, line {raised})"
    assert faults == [Fault("plugin-0", where, message)]
    assert [seat.source for seat in table.seats] == [other]
    assert other.observed == [9, 9, 9]


LIES: dict[str, Any] = {
    "float": Proposal((1, 2.0), Policy.VERIFY, "x"),  # type: ignore[arg-type]
    "bool": Proposal((1, True), Policy.VERIFY, "x"),
    "floats alone": Proposal((1.0, 2.0), Policy.VERIFY, "x"),  # type: ignore[arg-type]
    "bools alone": Proposal((False, True), Policy.VERIFY, "x"),
    "negative": verify(1, -1),
    "beyond the vocabulary": verify(1, VOCABULARY),
    "far beyond": verify(1, 1 << 70),
    "text": Proposal(("1", "2"), Policy.VERIFY, "x"),  # type: ignore[arg-type]
    "none": Proposal((1, None), Policy.VERIFY, "x"),  # type: ignore[arg-type]
    "list of ids": Proposal([1, 2], Policy.VERIFY, "x"),  # type: ignore[arg-type]
    "generator": Proposal((i for i in (1, 2)), Policy.VERIFY, "x"),  # type: ignore[arg-type]
    "nested": Proposal(((1, 2), (3, 4)), Policy.VERIFY, "x"),  # type: ignore[arg-type]
    "policy": Proposal((1, 2), "assert", "x"),  # type: ignore[arg-type]
    "evidence": Proposal((1, 2), Policy.VERIFY, "x", evidence="much"),  # type: ignore[arg-type]
    "origin": Proposal((1, 2), Policy.VERIFY, ["x"]),  # type: ignore[arg-type]
    "no origin": Proposal((1, 2), Policy.VERIFY, None),  # type: ignore[arg-type]
    "delimiter bound": Proposal((1, 2), Policy.VERIFY, "x", delimiter_bound=None),  # type: ignore[arg-type]
    "nothing, wrongly": Proposal((), "verify", "x"),  # type: ignore[arg-type]
    "no proposal": (1, 2),
    "true": True,
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_a_source_that_lies_leaves_the_table(lie: Any) -> None:
    faults: list[Fault] = []
    honest = Asked(verify(3, 4))
    table = session(Asked(lie), honest, faults=faults)
    offer = table.ask()
    assert offer is not None
    assert offer.ids == (3, 4)
    (fault,) = faults
    assert (fault.plugin, fault.where) == ("plugin-0", "propose")
    assert "\n" not in fault.message
    assert [seat.source for seat in table.seats] == [honest]


@pytest.mark.parametrize("call", ["propose", "observe", "resolved", "near"])
def test_a_source_that_is_slow_twice_leaves_the_table(
    monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])

    class Slow(Asked):
        def near(self) -> bool:
            return False

    def slow(source: Any, *given: Any) -> Any:
        now[0] += 1.0
        return quick(source, *given)

    quick = getattr(Slow, call)
    monkeypatch.setattr(Slow, call, slow)
    faults: list[Fault] = []
    table = session(Slow(verify(1, 2), verify(3, 4)), faults=faults)
    for _ in range(2):
        assert table.seats  # once may be an accident
        table.near()
        table.ask()
        table.settle(0, 1)
        table.add([5])
    (fault,) = faults
    assert (fault.where, "took 1.00 s" in fault.message) == (call, True)
    assert table.seats == []


@pytest.mark.parametrize(("took", "stays"), [(0.5, True), (0.75, False)])
def test_a_call_may_take_all_of_its_time(
    monkeypatch: pytest.MonkeyPatch, took: float, *, stays: bool
) -> None:
    clock = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])

    class Slow(Asked):
        def propose(self, view: Any) -> None:  # noqa: ARG002
            clock[0] += took

    table = session(Slow(), propose_budget_s=0.5)
    for _ in range(4):
        table.ask()
    assert bool(table.seats) is stays


def test_an_object_without_the_methods_of_a_source_is_never_seated() -> None:
    class Half:
        def propose(self, view: Any) -> None: ...

    faults: list[Fault] = []
    table = session(Half(), faults=faults)
    assert table.seats == []
    (fault,) = faults
    assert "observe" in fault.message


def test_a_source_whose_attributes_raise_is_never_seated() -> None:
    class Trap(Asked):
        @property
        def near(self) -> Any:
            raise RuntimeError("do not look")

    faults: list[Fault] = []
    honest = Asked(verify(1, 2))
    table = session(Trap(), honest, faults=faults)
    assert table.ask() is not None
    assert [fault.plugin for fault in faults] == ["plugin-0"]
    assert [seat.source for seat in table.seats] == [honest]


def test_sources_need_no_sane_equality() -> None:
    """A source that holds arrays cannot be compared; which one leaves is a matter of identity."""

    class Arrays(Raises):
        __hash__ = None  # type: ignore[assignment]

        def __eq__(self, other: object) -> bool:
            raise ValueError("the truth value of an array is ambiguous")

    faults: list[Fault] = []
    first, second, third = Arrays("never"), Arrays("propose"), Arrays("never")
    table = session(first, second, third, faults=faults)
    assert table.ask() is None
    assert [fault.plugin for fault in faults] == ["plugin-1"]
    assert [id(seat.source) for seat in table.seats] == [id(first), id(third)]


def test_an_offer_of_a_source_that_leaves_in_between_is_settled_all_the_same() -> None:
    source = Raises("observe", verify(1, 2))
    table = session(source)
    assert table.ask() is not None
    table.add([1])
    table.settle(1, 2)
    assert source.outcomes == [(verify(1, 2), 1)]
    assert table.ask() is None


def test_two_sources_of_one_plugin_that_claim_to_be_equal_are_two() -> None:
    class Same(Raises):
        __hash__ = None  # type: ignore[assignment]

        def __eq__(self, other: object) -> bool:
            return True

    first, second = Same("never"), Same("propose")
    seats = [SourceState("one plugin", source, trusted=True) for source in (first, second)]
    table = session()
    table.seats = seats
    assert table.ask() is None
    assert [id(seat.source) for seat in table.seats] == [id(first)]


# --- evidence ----------------------------------------------------------------------------


def test_right_ids_add_up_to_evidence_and_a_wrong_one_ends_it() -> None:
    table = session(Asked(*[verify(1, 2, 3)] * 6))
    seen = []
    for accepted, judged in [(2, 2), (3, 3), (1, 1), (1, 2), (3, 3), (0, 0)]:
        offer = table.ask()
        assert offer is not None
        seen.append(offer.evidence)
        table.settle(accepted, judged)
    assert seen == [0, 2, 5, 6, 0, 3]


def test_evidence_may_be_long() -> None:
    ids = [1] * 300
    learnt: list[tuple[int, bool]] = []

    class Noting(AcceptanceStats):
        def record(self, evidence: int, hit: bool) -> None:
            learnt.append((evidence, hit))

    table = session(Asked(*[verify(*ids)] * 3), max_span=400, budget=1000)
    table.seats[0].acceptance = Noting()
    seen = []
    for accepted, judged in [(len(ids), len([*ids])), (290, 291), (0, 0)]:
        offer = table.ask()
        assert offer is not None
        seen.append(offer.evidence)
        table.settle(accepted, judged)
    assert seen == [0, 300, 0]
    assert learnt[-1] == (590, False)
    assert all(hit for _, hit in learnt[:-1])


def test_evidence_is_the_sources_count_where_that_is_more() -> None:
    table = session(Asked(verify(1, 2), verify(1, 2, evidence=7), verify(1, 2, evidence=3)))
    seen = []
    for _ in range(3):
        offer = table.ask()
        assert offer is not None
        seen.append(offer.evidence)
        table.settle(2, 2)
    assert seen == [0, 7, 9]


def test_evidence_is_never_less_than_none() -> None:
    """Whatever a source claims, at first and after a wrong id."""
    table = session(Asked(*[verify(1, 2, evidence=-3)] * 3))
    for after in (lambda: table.settle(0, 1), table.drop_streaks, list):
        offer = table.ask()
        assert offer is not None
        assert offer.evidence == 0
        after()


def test_evidence_is_gone_when_nobody_offered() -> None:
    table = session(Asked(verify(1, 2), verify(1, 2)))
    assert table.ask() is not None
    table.settle(2, 2)
    table.drop_streaks()
    offer = table.ask()
    assert offer is not None
    assert offer.evidence == 0


def test_every_judged_id_is_learnt_with_what_led_up_to_it() -> None:
    learnt: list[tuple[int, bool]] = []

    class Noting(AcceptanceStats):
        def record(self, evidence: int, hit: bool) -> None:
            learnt.append((evidence, hit))

    table = session(Asked(verify(1, 2, 3), verify(1, 2, 3)))
    table.seats[0].acceptance = Noting()
    for accepted, judged in [(3, 3), (1, 2)]:
        assert table.ask() is not None
        table.settle(accepted, judged)
    assert learnt == [(0, True), (1, True), (2, True), (3, True), (4, False)]


def test_asserts_are_no_evidence() -> None:
    table = session(Asked(sure(1, 2), verify(1, 2)))
    assert table.ask() is not None
    table.settle(2, 2)
    offer = table.ask()
    assert offer is not None
    assert offer.evidence == 0


# --- counters and budgets ------------------------------------------------------------------


def test_counters_of_the_sources_add_up() -> None:
    class Counting(Asked):
        counts: Any

    one, two, three = Counting(), Counting(), Counting()
    one.counts, two.counts, three.counts = {"hits": 2, "odd": 0.5}, {"hits": 3, "misses": 1}, None
    assert session(one, two, three, Asked()).source_counts() == {"hits": 5, "misses": 1}


@pytest.mark.parametrize(("between", "stays"), [(1, False), (64, False), (65, True)])
def test_two_slow_calls_count_when_they_are_close(
    monkeypatch: pytest.MonkeyPatch, between: int, stays: bool
) -> None:
    """At a call in 64 tokens the time is lost once in a while: a source may be worth that."""
    clock = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])

    class Slow(Asked):
        def propose(self, _view: Any) -> None:
            clock[0] += 1.0

    faults: list[Fault] = []
    table = session(Slow(), faults=faults)
    table.add([1] * 60)
    table.ask()
    table.add([1] * between)
    table.ask()
    assert bool(table.seats) is stays
    said = "TimeoutError: took 1.00 s, and more than 0.05 s twice within 64 tokens"
    assert [fault.message for fault in faults] == ([] if stays else [said])


@pytest.mark.parametrize(
    ("ids", "wrong"), [((1, -2), -2), ((0, 64), 64), ((1, 64), 64), ((-1, 99), -1)]
)
def test_the_wrong_id_is_named(ids: tuple[int, ...], wrong: int) -> None:
    faults: list[Fault] = []
    session(Asked(verify(*ids)), faults=faults).ask()
    assert faults[0].message == f"ValueError: id {wrong} is outside the vocabulary of 64"
