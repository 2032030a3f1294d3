"""Hold the policy against made-up machines, and print the worst ratios.

    python benchmarks/clock.py [--seeds FROM:TO] [--tokens N] [--requests N] [--only WORD]

Each line is a kind of machine and one who guesses (core/tests/shared/machines.py).  *first* is the
worst ratio over the seeds of an engine's first reply, plain time by its time; *worst* and *median*
those of all replies; *lost* the most steps that a reply lost; *best* what the best depth that never
changes would give, of which *last* is the worst and *usual* the median share that the last reply
reached.  The lines at the end sum up: pairs that pay are those in which the best depth gains 5 %.
Take other seeds than those of the tests (0 to 2), or the table proves nothing.
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import median

from attrs import frozen

sys.path.insert(0, str(Path(__file__).parents[1] / "core" / "tests" / "shared"))

from machines import ARMS, KINDS, best_depth, ratios

LINE = "{:<18} {:<27}" + " {:>6}" * 7
PAYS = 1.05


@frozen
class Played:
    """Ratios of a pair by seed and reply, and that of the best fixed depth."""

    kind: str
    arm: str
    every: list[list[float]]
    best: float

    @property
    def all_replies(self) -> list[float]:
        """Of all seeds."""
        return [ratio for each in self.every for ratio in each]

    @property
    def shares(self) -> list[float]:
        """What the last replies reached of the best."""
        return [each[-1] / self.best for each in self.every]

    def line(self, tokens: int) -> str:
        """One line of the table."""
        worst, lost = min(self.all_replies), tokens * (1 / min(self.all_replies) - 1)
        cells = [min(each[0] for each in self.every), worst, median(self.all_replies)]
        texts = [f"{cell:.3f}" for cell in cells]
        shares = [f"{min(self.shares):.2f}", f"{median(self.shares):.2f}"]
        return LINE.format(self.kind, self.arm, *texts, f"{lost:.1f}", f"{self.best:.2f}", *shares)


def play(kind: str, arm: str, seeds: range, counts: list[int]) -> Played:
    """One pair on all seeds."""
    pair = KINDS[kind], ARMS[arm]
    every = [ratios(*pair, seed, counts) for seed in seeds]
    best = 1.0 if pair[1].right == 0 else best_depth(*pair, seeds[0], counts[0])
    return Played(kind, arm, every, best)


def summary(played: list[Played]) -> str:
    """Two lines: pairs that do not pay, and pairs that do."""
    lines = []
    for name, some in (
        ("does not pay", [each for each in played if each.best < PAYS]),
        ("pays", [each for each in played if each.best >= PAYS]),
    ):
        if some:
            replies = [ratio for each in some for ratio in each.all_replies]
            shares = [share for each in some for share in each.shares]
            lines.append(
                f"{name} ({len(some)} pairs): worst reply {min(replies):.3f}, "
                f"median {median(replies):.3f}; share of the best depth, last reply: "
                f"worst {min(shares):.2f}, mean {sum(shares) / len(shares):.3f}"
            )
    return "\n".join(lines)


def main() -> None:
    """Play every pair and print a line for each."""
    parser = argparse.ArgumentParser(description="Hold the policy against made-up machines.")
    parser.add_argument("--seeds", default="100:105", help="FROM:TO, TO excluded")
    parser.add_argument("--tokens", type=int, default=300)
    parser.add_argument("--requests", type=int, default=3)
    parser.add_argument("--only", default="", help="a word of the machine's or the arm's name")
    parser.add_argument("--jobs", type=int, default=1)
    arguments = parser.parse_args()
    seeds = range(*map(int, arguments.seeds.split(":")))
    pairs = [(kind, arm) for kind in KINDS for arm in ARMS if arguments.only in f"{kind}: {arm}"]
    columns = ("first", "worst", "median", "lost", "best", "last", "usual")
    print(LINE.format("machine", "who guesses", *columns))
    counts = [arguments.tokens] * arguments.requests
    with ProcessPoolExecutor(arguments.jobs) as pool:
        jobs = [pool.submit(play, *pair, seeds, counts) for pair in pairs]
        played = [job.result() for job in jobs]
    for each in played:
        print(each.line(arguments.tokens))
    print(summary(played))


if __name__ == "__main__":
    main()
