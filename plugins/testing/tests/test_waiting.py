"""Who waits for a check is told what for, and a quick check makes waiting short."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from mlxfill import Policy, Proposal, Request
from mlxfill_testing import ConformanceError, check_proposal_source
from mlxfill_testing.screen import Screen, show_on, shown_on

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

pytest_plugins = ["pytester"]

SOURCE = """
import mlxfill_testing
from mlxfill import Policy, Proposal


class Echo:
    def __init__(self, request):
        self.ids = list(request.prompt_ids)

    def observe(self, ids):
        self.ids.extend(ids)

    def propose(self, view):
        return Proposal((self.ids[-1],) * 2, Policy.VERIFY, "echo")

    def resolved(self, proposal, accepted):
        pass


def test_it():
    print("stories", mlxfill_testing.check_proposal_source(Echo, examples=24).stories)
"""


class Echo:
    """A right source: the newest token comes twice more."""

    beyond = 0

    def __init__(self, request: Request) -> None:
        self.ids = list(request.prompt_ids)

    def observe(self, ids: Sequence[int]) -> None:
        self.ids.extend(ids)

    def propose(self, _view: Any) -> Proposal:
        return Proposal((self.ids[-1] + self.beyond,) * 2, Policy.VERIFY, "echo")

    def resolved(self, _proposal: Proposal, _accepted: int) -> None: ...


class Beyond(Echo):
    beyond = 64


@pytest.fixture(params=[True, False], ids=["terminal", "file"])
def told(request: pytest.FixtureRequest) -> Iterator[list[str]]:
    """What is told on a terminal or in a file where each look at the clock takes a second."""
    texts: list[str] = []
    before = shown_on()
    show_on(lambda: Screen(texts.append, request.param, count(1.0).__next__))
    yield texts
    show_on(before)


def test_a_check_tells_how_far_it_is(told: list[str], request: pytest.FixtureRequest) -> None:
    check_proposal_source(Echo, name="spec-foo", quick=True)
    terminal = "terminal" in request.node.name
    first = "spec-foo: 1 sessions without a model, of 25"
    assert told[0] == (f"\n{first}" if terminal else f"{first}\n")
    assert any("11 sessions without a model, of 25" in text for text in told)
    assert all(text.startswith("\r\x1b[K") for text in told[1:]) is terminal
    assert (told[-1] == "\r\x1b[K") is terminal, "a terminal is left as it was"
    assert len(told) > 20 if terminal else len(told) < 10


def test_who_waits_for_a_shorter_example_is_told(told: list[str]) -> None:
    with pytest.raises(ConformanceError):
        check_proposal_source(Beyond, name="spec-foo", quick=True)
    found = "spec-foo: found a fault, looking for a shorter example (1 s)"
    assert any(found in text for text in told)


def test_nobody_is_told_of_what_is_soon_done(capsys: pytest.CaptureFixture[str]) -> None:
    before = shown_on()
    show_on(lambda: Screen(print, live=False, clock=lambda: 0.0))
    check_proposal_source(Echo, quick=True)
    show_on(before)
    assert capsys.readouterr().out == ""


def test_a_quick_check_finds_what_is_wrong_at_once() -> None:
    with pytest.raises(ConformanceError, match=r"offered id \d+, outside the vocabulary of 64"):
        check_proposal_source(Beyond, quick=True)


def test_the_search_for_a_shorter_example_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mlxfill_testing.conformance.trial.PATIENCE_S", -1.0)
    with pytest.raises(ConformanceError, match=r"offered id \d+, outside the vocabulary of 64"):
        check_proposal_source(Beyond)


def test_pytest_makes_all_checks_quick(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(SOURCE)
    tried = []
    for options in ([], ["--quick-checks"]):
        result = pytester.runpytest("-rP", "-p", "no:cacheprovider", *options)
        result.assert_outcomes(passed=1)
        tried += [int(line.split()[1]) for line in result.outlines if line.startswith("stories ")]
    usual, quick = tried
    assert quick * 4 < usual
