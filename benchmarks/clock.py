"""Hold the policy against made-up machines, and print the worst ratios.

    python benchmarks/clock.py [--seeds N] [--tokens N] [--requests N] [--only WORD]

Each line is a kind of machine and one who guesses (core/tests/shared/machines.py).  *first* is the
worst ratio over the seeds of an engine's first reply, plain time by its time; *worst* that of all
replies; *lost* the most steps that a reply lost; *best* what the best depth that never changes
would give, of which *last* is the share that the last reply reached.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "core" / "tests" / "shared"))

from machines import ARMS, KINDS, best_depth, ratios

LINE = "{:<18} {:<27} {:>6} {:>6} {:>6} {:>6} {:>6}"


def main() -> None:
    """Play every pair and print a line for each."""
    parser = argparse.ArgumentParser(description="Hold the policy against made-up machines.")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=300)
    parser.add_argument("--requests", type=int, default=3)
    parser.add_argument("--only", default="", help="a word of the machine's or the arm's name")
    arguments = parser.parse_args()
    print(LINE.format("machine", "who guesses", "first", "worst", "lost", "best", "last"))
    for kind in KINDS.values():
        for arm in ARMS.values():
            if arguments.only not in f"{kind.name}: {arm.name}":
                continue
            counts = [arguments.tokens] * arguments.requests
            every = [ratios(kind, arm, seed, counts) for seed in range(arguments.seeds)]
            worst = min(min(each) for each in every)
            lost = arguments.tokens * (1 / worst - 1)
            best = 1.0 if arm.right == 0 else best_depth(kind, arm, 0, arguments.tokens)
            share = min(each[-1] for each in every) / best
            cells = [f"{min(each[0] for each in every):.3f}", f"{worst:.3f}", f"{lost:.1f}"]
            print(LINE.format(kind.name, arm.name, *cells, f"{best:.2f}", f"{share:.2f}"))


if __name__ == "__main__":
    main()
