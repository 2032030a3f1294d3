"""Measure what one lookup costs on the host: propose, append one token, build from a prompt.

    python benchmarks/lookup.py [--match first|recent]

The prompt is made of new ids, spread like words, and of copied pieces.  Further tokens are
appended one by one, each followed by a proposal: "new" ones make it look up again nearly
every time, "copied" ones let it follow a match.  Medians of single calls, less the cost of
reading the clock; the median of several builds.
"""

from __future__ import annotations

import argparse
import itertools
import random
import statistics
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

from attrs import frozen

from mlxfill_spec_ngram import NgramSettings, NgramSource, make_lookup

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Match = Literal["first", "recent"]

PROPOSE_REACH, APPEND_REACH, BUILD_REACH = 2.0, 1.5, 200.0
"""Microseconds at ``LONGEST``, microseconds at ``LONGEST``, milliseconds at ``BUILT``."""
LONGEST, BUILT = 128_000, 100_000
LENGTHS = (1_000, 10_000, BUILT, LONGEST)
STEPS, BUILDS = 4_000, 5
VOCABULARY, PIECE = 32_000, 40
_NO_VIEW = cast("Any", None)  # the source observes everything and looks at no view


@frozen
class LookupCost:
    """Medians at one history length: a proposal or an ``append`` in us, ``build`` in ms."""

    length: int
    propose_new: float
    propose_copied: float
    append: float
    build: float


def measure(length: int, match: Match) -> LookupCost:
    """Costs with a history of ``length`` tokens."""
    words = Words()
    prompt = words.with_copies(length)
    builds = [clock(partial(built, prompt, match)) / 1e6 for _ in range(BUILDS)]
    append, new = step_through(built(prompt, match), words.new(STEPS))
    start = length // 2
    _, copied = step_through(built(prompt, match), prompt[start : start + STEPS])
    return LookupCost(
        length=length,
        propose_new=new,
        propose_copied=copied,
        append=append,
        build=statistics.median(builds),
    )


def step_through(source: NgramSource, reply: Iterable[int]) -> tuple[float, float]:
    """Median microseconds of an append and of a proposal, over the tokens of a reply."""
    appends, proposals = [], []
    for token in reply:
        appends.append(clock(partial(source.observe, (token,))))
        proposals.append(clock(partial(source.propose, _NO_VIEW)))
    idle = statistics.median(clock(partial(int)) for _ in range(STEPS))
    return (
        (statistics.median(appends) - idle) / 1e3,
        (statistics.median(proposals) - idle) / 1e3,
    )


class Words:
    """Ids of which few are frequent and most are rare, the same each time."""

    def __init__(self) -> None:
        self._chance = random.Random(0)  # noqa: S311 - no secret
        shares = (1 / rank for rank in range(1, VOCABULARY + 1))
        self._weights = list(itertools.accumulate(shares))

    def new(self, count: int) -> list[int]:
        """Draw ``count`` ids."""
        return self._chance.choices(range(VOCABULARY), cum_weights=self._weights, k=count)

    def with_copies(self, count: int) -> list[int]:
        """Draw half of ``count`` ids, and copy the other half from among them in pieces."""
        ids: list[int] = []
        while len(ids) < count:
            ids += self.new(PIECE)
            start = self._chance.randrange(len(ids) - PIECE + 1)
            ids += ids[start : start + PIECE]
        return ids[:count]


def built(prompt: Iterable[int], match: Match) -> NgramSource:
    """Make the source of a request with this prompt."""
    lookup = make_lookup(NgramSettings(match=match))
    lookup.seed(prompt)
    return NgramSource(lookup)


def clock(call: Callable[[], object]) -> int:
    """Nanoseconds of one call."""
    begin = time.perf_counter_ns()
    call()
    return time.perf_counter_ns() - begin


def verdicts(costs: Iterable[LookupCost]) -> list[tuple[str, float, float]]:
    """What is judged: its name, the value measured, the value to reach."""
    by_length = {cost.length: cost for cost in costs}
    return [
        (f"propose at {LONGEST:,}, us", by_length[LONGEST].propose_new, PROPOSE_REACH),
        (f"append at {LONGEST:,}, us", by_length[LONGEST].append, APPEND_REACH),
        (f"build at {BUILT:,}, ms", by_length[BUILT].build, BUILD_REACH),
    ]


def main() -> int:
    """Print a table of costs and one of verdicts; 1 when one is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--match", choices=get_args(Match), default="recent")
    match: Match = parser.parse_args().match
    costs = [measure(length, match) for length in LENGTHS]
    print("| history | propose us, new | propose us, copied | append us | build ms |")
    print("|--:|--:|--:|--:|--:|")
    for cost in costs:
        print(
            f"| {cost.length:,} | {cost.propose_new:.2f} | {cost.propose_copied:.2f} |"
            f" {cost.append:.2f} | {cost.build:.1f} |"
        )
    print("\n| what | value | reach | result |\n|---|--:|--:|---|")
    judged = verdicts(costs)
    for name, value, reach in judged:
        print(f"| {name} | {value:.2f} | {reach:g} | {'pass' if value <= reach else 'MISS'} |")
    return int(any(value > reach for _, value, reach in judged))


if __name__ == "__main__":
    sys.exit(main())
