from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from mlxfill import Policy, Proposal
from mlxfill_fill_echo import EchoSettings, EchoSource, Memory

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType

VIEW: Any = None  # all that counts was observed
END = 9
"""The delimiter."""


def source(
    prompt: Sequence[int], *, delimiters: Sequence[int] = (END,), **settings: Any
) -> EchoSource:
    settled = EchoSettings(**{"k": 3, **settings})
    memory = Memory(settled)
    memory.begin(prompt)
    return EchoSource(memory, settled, frozenset(delimiters))


def offer(prompt: Sequence[int], **settings: Any) -> Proposal:
    proposal = source(prompt, **settings).propose(VIEW)
    assert proposal is not None
    return proposal


TEXT = [1, 2, 3, 10, 11, 12, 13]


def test_offers_what_followed_the_run() -> None:
    assert offer([*TEXT, 0, 1, 2, 3]) == Proposal(
        (10, 11, 12, 13, 0, 1, 2, 3), Policy.VERIFY, "echo", delimiter_bound=True, evidence=3
    )


def test_a_run_shorter_than_k_is_not_enough() -> None:
    assert source([*TEXT, 0, 2, 3]).propose(VIEW) is None
    assert source([1, 2]).propose(VIEW) is None
    assert source([]).propose(VIEW) is None


def test_stops_where_earlier_places_fork() -> None:
    proposal = offer([*TEXT, 0, 1, 2, 3, 10, 11, 77, 0, 1, 2, 3])
    assert proposal.ids == (10, 11)


def test_says_nothing_where_they_fork_at_once_or_after_one_id() -> None:
    assert source([*TEXT, 0, 1, 2, 3, 66, 0, 1, 2, 3]).propose(VIEW) is None
    assert source([*TEXT, 0, 1, 2, 3, 10, 66, 0, 1, 2, 3]).propose(VIEW) is None


def test_a_place_that_runs_out_drops_out() -> None:
    proposal = offer([1, 2, 3, 1, 2, 3, 1, 2, 3])
    assert proposal.ids == (1, 2, 3, 1, 2, 3)


def test_only_the_nearest_places_count() -> None:
    text = [*TEXT, *[0, 1, 2, 3, 66, 67] * 3, 0, 1, 2, 3]
    assert source(text).propose(VIEW) is None
    assert offer(text, occurrences=3).ids[:2] == (66, 67)


def test_stops_after_a_delimiter() -> None:
    proposal = offer([1, 2, 3, 10, END, 11, 12, 0, 1, 2, 3])
    assert (proposal.ids, proposal.delimiter_bound) == ((10, END), True)


def test_the_newest_text_of_a_very_long_session_is_echoed() -> None:
    long_ago = range(100, 300_100)
    assert offer([*long_ago, *TEXT, 0, 1, 2, 3]).ids == (10, 11, 12, 13, 0, 1, 2, 3)


def test_offers_at_most_max_span() -> None:
    text = [*range(100, 200), 100, 101, 102]
    assert len(offer(text, max_span=16).ids) == 16
    assert len(offer(text, max_span=16, assert_=True).ids) == 16


def test_the_evidence_is_the_length_of_the_match() -> None:
    text = list(range(100, 300))
    echo, evidence = source(text), []
    for token in text[:60]:
        echo.observe([token])
        proposal = echo.propose(VIEW)
        evidence.append(proposal.evidence if proposal else 0)
    assert evidence[:5] == [0, 0, 3, 4, 5]
    assert evidence[-1] == 48


def test_offers_shrink_when_they_break_and_grow_when_they_hold() -> None:
    text = list(range(100, 400))
    echo, lengths = source(text), []

    def offered(start: int) -> None:
        echo.observe(text[start : start + 3])
        proposal = echo.propose(VIEW)
        lengths.append(len(proposal.ids) if proposal else 0)

    offered(0)
    for start in range(3, 30, 3):
        offered(start)
        echo.observe([1000 + start])  # the copy breaks off after the run that announced it
    offered(40)
    for token in text[43:200]:
        echo.observe([token])
        echo.propose(VIEW)
    echo.observe([0])
    offered(250)
    assert lengths[-2] < lengths[0] < lengths[-1]


def test_a_cut_offer_does_not_claim_to_end_at_the_fork() -> None:
    text = list(range(100, 115))
    prompt = [*text, 0, *text, 1, *text[:3]]
    first = source(prompt)
    first.propose(VIEW)
    assert first.counts == {"branch_stops": 1}
    echo = source([*prompt[:-3], 5])
    for start in range(3, 11):
        echo.observe([*text[start : start + 3]])
        echo.propose(VIEW)
        echo.observe([1000 + start])
    echo.observe(text[:3])
    before = dict(echo.counts)
    proposal = echo.propose(VIEW)
    assert proposal is not None
    assert len(proposal.ids) < 10
    assert echo.counts == before


# --- asserts ---------------------------------------------------------------------

CALL = [1, 2, 3, 10, 11, END]


@pytest.mark.parametrize(
    ("prompt", "policy", "ids"),
    [
        # Two places agree up to a delimiter.
        ([*CALL, 5, *CALL, 6, 1, 2, 3], Policy.ASSERT, (10, 11, END)),
        # What follows the delimiter may differ, and so may what came before the run.
        ([7, *CALL, 5, 8, *CALL, 6, 1, 2, 3], Policy.ASSERT, (10, 11, END)),
        # One place only: a copy.
        ([*CALL, 6, 1, 2, 3], Policy.VERIFY, (10, 11, END)),
        # They fork before a delimiter.
        ([*CALL, 5, 1, 2, 3, 10, 11, 12, END, 6, 1, 2, 3], Policy.VERIFY, (10, 11)),
        # No delimiter within reach.
        ([1, 2, 3, 10, 11, 12, 5, 1, 2, 3, 10, 11, 12, 5, 1, 2, 3], Policy.VERIFY, None),
    ],
)
def test_asserts_only_what_two_places_agree_on_up_to_a_delimiter(
    prompt: list[int], policy: Policy, ids: tuple[int, ...] | None
) -> None:
    proposal = offer(prompt, assert_=True)
    assert proposal.policy == policy
    assert ids is None or proposal.ids == ids
    assert offer(prompt).policy == Policy.VERIFY


def test_never_asserts_without_delimiters() -> None:
    prompt = [*CALL, 5, *CALL, 6, 1, 2, 3]
    assert offer(prompt, assert_=True, delimiters=()).policy == Policy.VERIFY


def test_an_assert_is_not_cut_by_how_offers_held() -> None:
    call = [1, 2, 3, *range(100, 120), END]
    echo = source([*call, 5, *call, 6], assert_=True)
    for _ in range(10):
        echo.observe([101, 102, 103])
        echo.propose(VIEW)
        echo.observe([77])
    echo.observe([1, 2, 3])
    proposal = echo.propose(VIEW)
    assert proposal is not None
    assert (proposal.policy, len(proposal.ids)) == (Policy.ASSERT, 21)


# --- cost ------------------------------------------------------------------------


def lines_run(call: Callable[[], object]) -> int:
    """Lines of the plugin that a call runs."""
    count = 0

    def trace(frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal count
        count += event == "line" and "mlxfill_fill_echo" in frame.f_code.co_filename
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


def test_the_next_turn_of_a_session_reads_what_is_new() -> None:
    memory = Memory(EchoSettings())
    prompt = [at % 997 for at in range(100_000)]
    memory.begin(prompt)
    assert lines_run(partial(memory.begin, [*prompt, 1, 2, 3])) < len(prompt) / 100
    assert len(memory) == len(prompt) + 3


def test_work_per_token_does_not_grow_with_the_session() -> None:
    work = []
    for repeats in (60, 6000):
        echo = source([1, 2, 3, 4, 1, 2, 5, 3, 9, 8, 4, 4] * repeats, delimiters=())
        steps = [1, 2, 3, 4, 8, 9, 9, 1, 2, 6, 6, 5, 3, 9, 8]
        work.append(
            [
                (lines_run(partial(echo.observe, [step])), lines_run(partial(echo.propose, VIEW)))
                for step in steps
            ]
        )
    assert work[0] == work[1]
