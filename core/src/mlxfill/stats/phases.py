"""Where the time of a window goes."""

from __future__ import annotations

import time

import mlx.core as mx

NAMES = ("draft", "verify", "sample", "commit")


class Phases:
    """Milliseconds spent drafting, verifying, sampling and committing, over all windows.

    Each phase is computed to its end before the next one is built, which removes the overlap of
    host and device: this tells where time goes, not how fast decoding is.  ``commit`` takes
    refused tokens back and tells the drafter.
    """

    def __init__(self) -> None:
        self.ms = dict.fromkeys(NAMES, 0.0)
        self._last = 0.0

    def begin(self) -> None:
        """A window begins."""
        self._last = time.perf_counter()

    def end(self, name: str, *arrays: object) -> None:
        """The phase ``name`` ends once ``arrays`` (and trees of them) are computed."""
        mx.eval(*arrays)
        now = time.perf_counter()
        self.ms[name] += (now - self._last) * 1e3
        self._last = now
