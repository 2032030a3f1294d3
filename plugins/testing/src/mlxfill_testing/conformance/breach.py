"""Looking for the shortest story in which a plugin breaks its contract."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from attrs import define, field

from mlxfill_testing.conformance.words import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


PATIENCE_S = 10.0
"""How long a shorter story is looked for once a breach was found, in seconds."""
SILENCE_S = 1.0
"""After how much of that someone who waits is told why."""


class ConformanceError(AssertionError):
    """A plugin breaks its contract; the message says in one line what it did and when.

    Its cause is what the plugin raised, with the plugin's own traceback, where it raised something.
    """


class Breach(Exception):  # noqa: N818 - one finding, on its way to become the error
    """What a plugin did wrong, and how long the story is that shows it."""

    def __init__(self, said: str, size: int = 0) -> None:
        super().__init__(said)
        self.said, self.size = said, size


@contextmanager
def blamed(told: Callable[[str], Breach], where: str) -> Iterator[None]:
    """Turn whatever a plugin raises inside into a breach, ``SystemExit`` too; Ctrl-C passes."""
    try:
        yield
    except (Breach, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise told(f"raised {one_line(error)} in {where}") from error


@contextmanager
def said_of(name: str) -> Iterator[None]:
    """Turn a breach into the error, under the plugin's name."""
    __tracebackhide__ = True
    try:
        yield
    except Breach as breach:
        raise ConformanceError(f"{name}: {breach.said}") from breach.__cause__


def shortest(
    name: str,
    stories: Any,  # noqa: ANN401
    examine: Callable[[Any], None],
    examples: int,
) -> None:
    """Try ``examine`` on ``examples`` stories; the shortest one with a breach is the error.

    :param stories: a hypothesis strategy; stories that fail are made shorter, for ``PATIENCE_S``.
    :raises ConformanceError: a story ended in a breach.
    """
    __tracebackhide__ = True
    from hypothesis import HealthCheck, Phase, Verbosity, given, settings

    search = _Search(name)

    @settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=None,
        report_multiple_bugs=False,
        verbosity=Verbosity.quiet,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(stories)
    def tried(story: Any) -> None:  # noqa: ANN401
        if search.is_over():
            return
        try:
            examine(story)
        except Breach as breach:
            search.found.append(breach)
            raise

    try:
        tried()
    except BaseException:  # a plugin that is wrong now and then makes hypothesis complain of it
        if not search.found:
            raise
    if search.found:
        breach = search.shortest()
        raise ConformanceError(f"{name}: {breach.said}") from breach.__cause__


@define
class _Search:
    """The breaches found so far, and how long it has been since the first."""

    name: str
    found: list[Breach] = field(factory=list)
    _since: float = 0.0
    _told: bool = False
    _over: bool = False

    def is_over(self) -> bool:
        """Whether to look no further; says once, on standard error, why it takes so long."""
        if not self.found:
            return False
        self._since = self._since or time.monotonic()
        waited = time.monotonic() - self._since
        if waited > SILENCE_S and not self._told:
            self._told = True
            looking = f"looking for a shorter example ({PATIENCE_S:.0f} s)"
            sys.stderr.write(f"{self.name}: found a fault, {looking}\n")
            sys.stderr.flush()
        self._over = waited > PATIENCE_S
        return self._over

    def shortest(self) -> Breach:
        """That of the story that hypothesis ended with, unless it was cut short."""
        return min(self.found, key=lambda breach: breach.size) if self._over else self.found[-1]
