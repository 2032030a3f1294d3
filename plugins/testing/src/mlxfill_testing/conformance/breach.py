"""What breaks a contract: a breach, which becomes the error under the plugin's name."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from mlxfill_testing.conformance.words import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


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
