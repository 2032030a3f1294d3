"""Guesses about a known text that are right as often as a test wants."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from mlxfill_testing.architectures import VOCAB

if TYPE_CHECKING:
    from collections.abc import Sequence


class Script:
    """The whole session that plain decoding writes, and a seeded way to get it wrong.

    ``truth``: prompt and continuation.  ``accuracy`` 1.0 guesses every id right, 0.0 every id
    wrong, anything between is the chance of each.  Past the end of the truth ids are random.
    """

    def __init__(self, truth: Sequence[int], accuracy: float, seed: int = 0) -> None:
        self.truth = list(truth)
        self.accuracy = accuracy
        self.random = random.Random(seed)  # noqa: S311 - a test repeats itself

    def guess(self, start: int, count: int) -> list[int]:
        """``count`` ids from position ``start`` of the session on."""
        ids = []
        for at in range(start, start + count):
            known = at < len(self.truth)
            right = self.truth[at] if known else self.random.randrange(VOCAB)
            hit = self.random.random() < self.accuracy
            ids.append(right if hit else (right + self.random.randrange(1, VOCAB)) % VOCAB)
        return ids
