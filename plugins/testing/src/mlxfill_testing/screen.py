"""What a check is doing, for who waits for it, and whether it shall be a quick one."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TextIO

from attrs import define, field

SILENCE_S = 1.0
"""Seconds after which someone who waits is told what for."""
OFTEN_S, SELDOM_S = 0.25, 10.0
"""Seconds between two lines: on a terminal, where the new one takes the place of the old, and in a
file."""
OVER_IT = "\r\x1b[K"


@define
class Screen:
    """Shows one line at a time, on a terminal in the place of the one before.

    ``write``: puts text before whoever waits; ``live``: whether that is a terminal.
    """

    write: Callable[[str], object]
    live: bool = False
    clock: Callable[[], float] = time.monotonic
    _due: float = field(init=False)
    _begun: bool = False

    def __attrs_post_init__(self) -> None:
        self._due = self.clock() + SILENCE_S

    def show(self, line: str) -> None:
        """Show a line, unless it is too soon."""
        now = self.clock()
        if now < self._due:
            return
        self._due = now + (OFTEN_S if self.live else SELDOM_S)
        begin = OVER_IT if self._begun else "\n"
        self.write(f"{begin}{line}" if self.live else f"{line}\n")
        self._begun = True

    def clear(self) -> None:
        """Take the line away."""
        if self._begun and self.live:
            self.write(OVER_IT)


def on_stderr() -> Screen:
    """The screen of a process that nobody captures."""
    return Screen(_writer(sys.stderr), sys.stderr.isatty())


def _writer(stream: TextIO) -> Callable[[str], object]:
    def write(text: str) -> None:
        stream.write(text)
        stream.flush()

    return write


_made = [on_stderr]


def screen() -> Screen:
    """A new screen, as whoever runs the checks wants it."""
    return _made[0]()


def shown_on() -> Callable[[], Screen]:
    """What makes the screens of this process."""
    return _made[0]


def show_on(make: Callable[[], Screen]) -> None:
    """Let checks of this process make their screens so."""
    _made[:] = [make]


_quick = [False]


def is_quick() -> bool:
    """Whether every check of this process is a quick one."""
    return _quick[0]


def check_quickly(*, quick: bool) -> None:
    """Let every check of this process be a quick one from now on, or none unless it says so."""
    _quick[:] = [quick]
