"""Statistics of pairs: two arms answered the same turn.

McNemar's test (1947) in its exact form, a binomial in the discordant pairs; the exact bound of
Clopper and Pearson (1934); the percentile bootstrap (Efron 1979) over nested samples.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

Pair: TypeAlias = tuple[float, float]
"""Seconds of plain decoding and of the arm, in one round."""
Rounds: TypeAlias = "Sequence[Pair]"
"""One turn."""
Turns: TypeAlias = "Sequence[Rounds]"
"""One session: as many rounds of each turn."""

CONFIDENCE = 0.95
DRAWS = 2000


def worse_by_chance(worse: int, better: int) -> float:
    """One-sided p of McNemar's exact test.

    The chance that at least ``worse`` of the ``worse + better`` turns in which only one of the two
    is right go against the arm, if either direction is as likely.
    """
    from scipy.stats import binom

    return float(binom.sf(worse - 1, worse + better, 0.5))


def upper_bound(hits: int, of: int, confidence: float = CONFIDENCE) -> float:
    """The largest share (0 to 1) that is compatible with ``hits`` in ``of`` trials, one-sided.

    1 when nothing was tried.
    """
    from scipy.stats import beta

    return 1.0 if hits >= of else float(beta.ppf(confidence, hits + 1, of - hits))


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
    import numpy as np

    random = np.random.default_rng(seed)
    drawn = random.integers(len(sessions), size=(DRAWS, len(sessions)))
    ratios = np.empty(drawn.shape)
    for number, turns in enumerate(sessions):
        chosen = drawn == number
        ratios[chosen] = _redrawn_ratios(random, np.array(turns), int(chosen.sum()))
    tail = (1 - confidence) / 2
    low, high = np.quantile(np.median(ratios, axis=1), [tail, 1 - tail])
    return float(low), float(high)


def _redrawn_ratios(
    random: np.random.Generator, times: NDArray[np.float64], draws: int
) -> NDArray[np.float64]:
    """``session_ratio`` of ``draws`` new samples of a session: ``[turns, rounds, 2]`` seconds."""
    import numpy as np

    turns, rounds, _ = times.shape
    turn = random.integers(turns, size=(draws, turns, 1))
    round_ = random.integers(rounds, size=(draws, turns, rounds))
    plain, arm = np.moveaxis(np.median(times[turn, round_], axis=2).sum(axis=1), -1, 0)
    ratios: NDArray[np.float64] = plain / arm
    return ratios
