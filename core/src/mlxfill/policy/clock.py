"""Times plain steps and laps between tokens."""

from __future__ import annotations

import time

from mlxfill.policy.constants import AWAY


class StepClock:
    """Times pipelined steps from read to read; leaves out steps that the consumer held up."""

    def __init__(self) -> None:
        """Nothing timed yet; ``step_s`` 0: the last step is not to be counted."""
        self.step_s = self.lap_s = self.away_s = 0.0
        self._started = self._last_read = self._last_ready = 0.0

    def start(self) -> None:
        """The consumer is back."""
        self._started = time.perf_counter()

    def read(self) -> None:
        """A token was read, ``lap_s`` after the last; the consumer was away for ``away_s``."""
        now = time.perf_counter()
        self.lap_s = now - self._last_read if self._last_read else 0.0
        self.away_s = max(self._started - self._last_ready, 0.0)
        self.step_s = self.lap_s if self.away_s < AWAY * self.lap_s else 0.0
        self._last_read, self._started, self._last_ready = now, 0.0, 0.0

    def ready(self) -> None:
        """The consumer has the turn."""
        self._last_ready = time.perf_counter()
