"""The kit on generation methods that are right, and on each kind that is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from attrs import define

from mlxfill_testing import ConformanceError, ConformanceWarning, check_generation_method

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mlxfill import Request

Settled = list[tuple[int, str]]


@define
class Countdown:
    """Two tokens a forward, from the seed on."""

    name: str = "countdown"

    def generate(self, request: Request) -> Iterator[Settled]:
        start = 40 + (request.sampling.seed or 0)
        for token in range(start, start - 30, -2):
            yield []
            yield [(token, "counted"), (token - 1, "counted")]


class ByLength(Countdown):
    def generate(self, request: Request) -> Iterator[Settled]:
        yield [(request.limits.max_tokens, "counted")] * 30


class Remembers(Countdown):
    asked = 0

    def generate(self, request: Request) -> Iterator[Settled]:  # noqa: ARG002 - the contract's
        Remembers.asked += 1
        yield [(5 + Remembers.asked % 7, "counted")] * 30


class NeedsTheEnd(Countdown):
    """Takes what a reader left unfinished for the beginning of the next request."""

    left: list[int] = []  # noqa: RUF012 - the fault

    def generate(self, request: Request) -> Iterator[Settled]:  # noqa: ARG002
        for token in range(40, 10, -1):
            self.left.append(token)
            yield [(token - len(self.left) // 31, "counted")]
        self.left.clear()


class OutOfVocabulary(Countdown):
    def generate(self, request: Request) -> Iterator[Settled]:  # noqa: ARG002
        yield [(10**6, "counted")]


class Raises(Countdown):
    def generate(self, request: Request) -> Iterator[Settled]:
        yield [(7, "counted")]
        if len(request.prompt_ids) > 3:
            raise RuntimeError("no more than three")


class Silent(Countdown):
    def generate(self, request: Request) -> Iterator[Settled]:  # noqa: ARG002
        yield []


def test_a_right_method_passes() -> None:
    report = check_generation_method(Countdown())
    assert report.stories >= 5
    assert report.accepted == report.offers * 2 > 0


@pytest.mark.parametrize(
    ("method", "told"),
    [
        (ByLength, "settle what is settled without a limit"),
        (Remembers, "wrote"),
        (NeedsTheEnd, "for a reader who left"),
        (OutOfVocabulary, "1000000"),
        (Raises, "no more than three"),
        (lambda: Countdown(name=""), "needs a name"),
    ],
)
def test_a_wrong_one_is_told_in_a_line(method: Any, told: str) -> None:
    with pytest.raises(ConformanceError, match=told) as caught:
        check_generation_method(method())
    assert "\n" not in str(caught.value)


def test_one_that_settles_nothing_was_not_tested() -> None:
    with pytest.warns(ConformanceWarning, match="nothing was tested"):
        check_generation_method(Silent())
