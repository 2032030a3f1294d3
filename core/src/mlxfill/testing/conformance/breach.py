"""Looking for the shortest story in which a plugin breaks its contract."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from mlxfill.plugins.faults import one_line
from mlxfill.testing.needed import needed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class ConformanceError(AssertionError):
    """A plugin breaks its contract; the message says in one line what it did and when."""


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
        raise ConformanceError(f"{name}: {breach.said}") from None


def shortest(
    name: str,
    stories: Any,  # noqa: ANN401
    examine: Callable[[Any], None],
    examples: int,
) -> None:
    """Try ``examine`` on ``examples`` stories; the shortest one with a breach is the error.

    :param stories: a hypothesis strategy; stories that fail are made shorter.
    :raises ConformanceError: a story ended in a breach.
    """
    __tracebackhide__ = True
    needed("hypothesis")
    from hypothesis import HealthCheck, Phase, Verbosity, given, settings

    found: list[Breach] = []

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
        try:
            examine(story)
        except Breach as breach:
            found.append(breach)
            raise

    try:
        tried()
    except BaseException:  # a plugin that is wrong now and then makes hypothesis complain of it
        if not found:
            raise
    if found:
        raise ConformanceError(f"{name}: {found[-1].said}") from None
