"""Looking for the shortest story in which a plugin breaks its contract."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from attrs import define, field

from mlxfill_testing.conformance.breach import Breach, ConformanceError
from mlxfill_testing.screen import Screen, is_quick, screen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


PATIENCE_S, HURRY_S = 10.0, 1.0
"""How long a shorter story is looked for once a breach was found, in seconds; quickly."""
QUICKLY, FEWEST = 6, 4
"""One in so many examples is tried in a quick check, and at least so many."""


def _quickly(quick: bool) -> bool:
    return quick or is_quick()


@define
class Trial:
    """One check of a plugin: its name in messages, and whether it is a quick check."""

    name: str
    quick: bool = field(converter=_quickly)
    screen: Screen = field(factory=screen)

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Leave nothing on the screen behind."""
        __tracebackhide__ = True
        try:
            yield
        finally:
            self.screen.clear()

    def shortest(
        self,
        doing: str,
        stories: Any,  # noqa: ANN401
        examine: Callable[[Any], None],
        examples: int,
    ) -> None:
        """Try ``examine`` on ``examples`` stories; the shortest one with a breach is the error.

        :param doing: what is tried, for who waits.
        :param stories: a hypothesis strategy; stories that fail are made shorter for a while.
        :raises ConformanceError: a story ended in a breach.
        """
        __tracebackhide__ = True
        from hypothesis import HealthCheck, Phase, Verbosity, given, settings

        if self.quick:
            examples = min(examples, max(examples // QUICKLY, FEWEST))
        search = _Search(self, f"{doing}, of {examples}")

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

        with self.shown():
            try:
                tried()
            except BaseException:  # a plugin that is wrong now and then makes hypothesis complain
                if not search.found:
                    raise
        if search.found:
            breach = search.shortest()
            raise ConformanceError(f"{self.name}: {breach.said}") from breach.__cause__


@define
class _Search:
    """The breaches found so far, and how long it has been since the first."""

    trial: Trial
    doing: str
    found: list[Breach] = field(factory=list)
    _tried: int = 0
    _since: float = 0.0
    _over: bool = False

    def is_over(self) -> bool:
        """Whether to look no further; who waits is told what for."""
        name, screen = self.trial.name, self.trial.screen
        if not self.found:
            self._tried += 1
            screen.show(f"{name}: {self._tried} {self.doing}")
            return False
        patience = HURRY_S if self.trial.quick else PATIENCE_S
        self._since = self._since or time.monotonic()
        screen.show(f"{name}: found a fault, looking for a shorter example ({patience:.0f} s)")
        self._over = time.monotonic() - self._since > patience
        return self._over

    def shortest(self) -> Breach:
        """That of the story that hypothesis ended with, unless it was cut short."""
        return min(self.found, key=lambda breach: breach.size) if self._over else self.found[-1]
