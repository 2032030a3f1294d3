"""How much a source does for one token, at two lengths of a session.

Lines of Python are counted, which no clock disturbs.  What C code does in one of them is timed, by
the thread's own processor time: other programs have no part in it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from attrs import define

from mlxfill_testing.conformance.breach import Breach, blamed
from mlxfill_testing.conformance.sessions.playing import StrictView

TOKENS = 64
"""Tokens over which the work is averaged: an index may be built anew now and then."""
FACTOR = 4
"""How much longer the longer session is."""
COUNTED, MANY, MOST = 250, 400, 50_000
"""The shortest session whose lines are counted; lines a token that are worth a word; lines after
which counting ends."""
TIMED, SLOW_NS, SLOWEST_NS = 2_000, 40_000, 5_000_000
"""The same in nanoseconds of processor time."""
REPEATS = 3
"""The least of so many times counts."""
ADVICE = "a long session gets slower with every token; index the session in observe()"
BUDGET = 1_000
"""Tokens that may still come, as the source is told."""


@define
class Grown:
    """A source in a long session."""

    source: Any
    tokens: list[int]

    def once(self, token: int) -> None:
        """It is asked, and a token enters.  Raises ``Breach``."""
        source = self.source
        with blamed(self._breach, "a long session"):
            near = getattr(source, "near", None)
            if near is not None:
                near()
            offer = source.propose(StrictView(self.tokens, BUDGET))
            if offer is not None:
                source.resolved(offer, 0)
            source.observe((token % 61,))
        self.tokens.append(token % 61)

    def _breach(self, said: str) -> Breach:
        return Breach(f"after {len(self.tokens)} tokens the source {said}", len(self.tokens))


Begun = Callable[[int], Grown]


def growth(begun: Begun) -> str:
    """What the work for a token does as the session grows, in words; "" where it stays.

    :param begun: makes the source under test, in a session of so many tokens.
    """
    for length in (COUNTED, COUNTED * FACTOR):
        few, many = (_lines(begun(n)) for n in (length, length * FACTOR))
        if many > MANY and many > few * FACTOR / 2:
            return (
                f"one token takes {many} lines of Python in a session of {length * FACTOR} tokens"
                f" and {few} in one of {length}: {ADVICE}"
            )
    length = TIMED
    little = much = _nanoseconds(begun, length)
    while length < TIMED * FACTOR**2 and much < SLOWEST_NS:
        length *= FACTOR
        much = _nanoseconds(begun, length)
    if much > SLOW_NS and much / little > length / TIMED / 2:
        return (
            f"one token takes {much / 1000:.0f} us in a session of {length} tokens and"
            f" {little / 1000:.0f} in one of {TIMED}: {ADVICE}"
        )
    return ""


def _lines(grown: Grown) -> int:
    """Lines of Python that run for one token; what C code does in one of them counts as one."""
    lines = 0

    def trace(*event: Any) -> Any:  # noqa: ANN401 - the interpreter's
        nonlocal lines
        lines += event[1] == "line"
        return trace

    grown.once(0)  # what is indexed at first is not the next token's
    before, done = sys.gettrace(), 0
    sys.settrace(trace)
    try:
        while done < TOKENS and lines < MOST:
            done += 1
            grown.once(done)
    finally:
        sys.settrace(before)
    return lines // done


def _nanoseconds(begun: Begun, length: int) -> int:
    """Processor time that one token takes."""
    grown, times = begun(length), []
    grown.once(0)
    for _ in range(REPEATS):
        done, start = 0, time.thread_time_ns()
        while done < TOKENS and time.thread_time_ns() - start < SLOWEST_NS * TOKENS // 8:
            done += 1
            grown.once(done)
        times.append((time.thread_time_ns() - start) // done)
    return max(min(times), 1)
