"""Measure what echoing costs on the host: append one token, propose, build from a prompt.

    python benchmarks/echo.py

Prompt and tokens are those of ``lookup.py``.  "new" tokens find nothing nearly every time,
"copied" ones find the place that is copied, "looped" ones find as many places as are compared.
Medians of single calls, less the cost of reading the clock, and the slowest proposal in a hundred.
"""

from __future__ import annotations

import statistics
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from lookup import BUILDS, LENGTHS, STEPS, Words, clock
from mlxfill_fill_echo import EchoSettings, EchoSource, Memory

if TYPE_CHECKING:
    from collections.abc import Sequence

SETTINGS = EchoSettings()
LOOP = 60
_NO_VIEW = cast("Any", None)  # the source observes everything and looks at no view


def begun(prompt: Sequence[int]) -> Memory:
    """Make the memory of a request with this prompt."""
    memory = Memory(SETTINGS)
    memory.begin(prompt)
    return memory


def step_through(memory: Memory, reply: Sequence[int]) -> tuple[float, float, float]:
    """Microseconds over the tokens of a reply: an append, a proposal, the slowest in a hundred."""
    source = EchoSource(memory, SETTINGS, frozenset())
    idle = statistics.median(clock(partial(int)) for _ in range(STEPS))
    appends, proposals = [], []
    for token in reply:
        appends.append(clock(partial(source.observe, (token,))) - idle)
        proposals.append(clock(partial(source.propose, _NO_VIEW)) - idle)
    slow = statistics.quantiles(proposals, n=100)[-1]
    return statistics.median(appends) / 1e3, statistics.median(proposals) / 1e3, slow / 1e3


def main() -> None:
    """Print a row for each length of history and kind of reply."""
    print("| history | reply | append us | propose us | slowest in 100 us | build ms |")
    print("|--:|---|--:|--:|--:|--:|")
    for length in LENGTHS:
        words = Words()
        prompt = words.with_copies(length)
        build = statistics.median(clock(partial(begun, prompt)) / 1e6 for _ in range(BUILDS))
        start = length // 2
        replies = {
            "new": words.new(STEPS),
            "copied": prompt[start : start + STEPS],
            "looped": prompt[:LOOP] * (STEPS // LOOP),
        }
        for kind, reply in replies.items():
            append, propose, slow = step_through(begun(prompt), reply)
            print(
                f"| {length:,} | {kind} | {append:.2f} | {propose:.2f} | {slow:.1f} | {build:.1f} |"
            )


if __name__ == "__main__":
    main()
