"""Several contestants decode one prompt in turn, round after round.

Machines drift: a ratio is taken inside each round, where both sides met the same load, and
the median of those ratios is reported.  Every other round runs in reverse order.
"""

from __future__ import annotations

import statistics
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from arms import Arm, Run

WARM_UP_TOKENS = 8


@dataclass
class Contest:
    """The rounds of one prompt: for each contestant's name its runs in order."""

    name: str
    runs: dict[str, list[Run]] = field(default_factory=dict)

    def ratios(self, ours: str, theirs: str) -> list[float]:
        """Tell how many times faster ``ours`` decoded in each round."""
        rounds = zip(self.runs[ours], self.runs[theirs], strict=True)
        return [a.times_faster(b) for a, b in rounds]

    def rate(self, name: str) -> float:
        """Give tokens per second: median over rounds."""
        return statistics.median(run.rate for run in self.runs[name])

    def difference(self, *names: str) -> str:
        """Compare the ids of all runs of ``names``: empty when identical, else where they part."""
        reference = self.runs[names[0]][0].ids
        for name in names:
            for number, run in enumerate(self.runs[name], 1):
                if run.ids != reference:
                    at = first_difference(reference, run.ids)
                    return f"{name}, round {number}, token {at}"
        return ""


def first_difference(a: Sequence[int], b: Sequence[int]) -> int:
    """Find the index at which two sequences part; the shorter length if one begins the other."""
    pairs = zip(a, b, strict=False)
    return next((i for i, (x, y) in enumerate(pairs) if x != y), min(len(a), len(b)))


def hold(
    name: str, arms: Sequence[Arm], prompt: Sequence[int], tokens: int, rounds: int
) -> Contest:
    """Warm every contestant up, then let all decode in each round."""
    contest = Contest(name, {arm.name: [] for arm in arms})
    for arm in arms:
        arm.run(prompt, WARM_UP_TOKENS)
    for number in range(rounds):
        order = arms if number % 2 == 0 else arms[::-1]
        for arm in order:
            contest.runs[arm.name].append(arm.run(prompt, tokens))
        report(contest, number + 1, rounds)
    return contest


def report(contest: Contest, number: int, rounds: int) -> None:
    """Show the progress of a long measurement."""
    rates = ", ".join(f"{name} {runs[-1].rate:.1f}" for name, runs in contest.runs.items())
    print(f"{contest.name} {number}/{rounds}: {rates} tokens/s", file=sys.stderr, flush=True)
