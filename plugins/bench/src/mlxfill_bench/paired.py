"""Statistics of pairs: two arms answered the same turn.

McNemar's test (1947) in its exact form, a binomial in the discordant pairs; the exact bound of
Clopper and Pearson (1934); the percentile bootstrap (Efron 1979) over nested samples.
"""

from __future__ import annotations

import math
from random import Random
from statistics import median
from typing import TYPE_CHECKING, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

Pair: TypeAlias = tuple[float, float]
"""Seconds of plain decoding and of the arm, in one round."""
Rounds: TypeAlias = "Sequence[Pair]"
"""One turn."""
Turns: TypeAlias = "Sequence[Rounds]"
"""One session."""

CONFIDENCE = 0.95
DRAWS = 1000
_T = TypeVar("_T")


def worse_by_chance(worse: int, better: int) -> float:
    """One-sided p of McNemar's exact test.

    The chance that at least ``worse`` of the ``worse + better`` turns in which only one of the two
    is right go against the arm, if either direction is as likely.
    """
    n = worse + better
    return sum(math.comb(n, k) for k in range(worse, n + 1)) / (1 << n)


def upper_bound(hits: int, of: int, confidence: float = CONFIDENCE) -> float:
    """The largest share (0 to 1) that is compatible with ``hits`` in ``of`` trials, one-sided.

    1 when nothing was tried.
    """
    if hits >= of:
        return 1.0
    low, high = hits / of, 1.0
    while high - low > 1e-9:  # noqa: PLR2004 - far finer than what is printed
        share = (low + high) / 2
        if _at_most(hits, of, share) > 1 - confidence:
            low = share
        else:
            high = share
    return high


def _at_most(hits: int, of: int, share: float) -> float:
    """Chance of ``hits`` or fewer in ``of`` trials; logarithms, since the factors overflow."""
    yes, no = math.log(share), math.log1p(-share)
    return math.fsum(
        math.exp(
            math.lgamma(of + 1)
            - math.lgamma(k + 1)
            - math.lgamma(of - k + 1)
            + k * yes
            + (of - k) * no
        )
        for k in range(hits + 1)
    )


def session_ratio(turns: Turns) -> float:
    """How many times faster the arm was: total plain time by total time of the arm.

    A turn takes the median of its rounds: other programs disturb single replies.
    """
    plain, arm = (sum(median(pair[side] for pair in rounds) for rounds in turns) for side in (0, 1))
    return plain / arm


def overall_ratio(sessions: Sequence[Turns]) -> float:
    """The median of the sessions."""
    return median(map(session_ratio, sessions))


def ratio_interval(
    sessions: Sequence[Turns], seed: int, confidence: float = CONFIDENCE
) -> tuple[float, float]:
    """Two-sided interval of ``overall_ratio``: sessions, turns in them and rounds drawn anew."""
    rng = Random(seed)  # noqa: S311 - repeatable
    drawn = sorted(
        overall_ratio(
            [
                [_redraw(rng, rounds) for rounds in _redraw(rng, turns)]
                for turns in _redraw(rng, sessions)
            ]
        )
        for _ in range(DRAWS)
    )
    left_out = round(DRAWS * (1 - confidence) / 2)
    return drawn[left_out], drawn[-1 - left_out]


def _redraw(rng: Random, items: Sequence[_T]) -> list[_T]:
    return rng.choices(items, k=len(items))
