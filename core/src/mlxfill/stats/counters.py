"""What the decode loop counts and times."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from attrs import define, field

if TYPE_CHECKING:
    from collections.abc import Mapping

JUDGED, COST, END, SHORT, UNSUPPORTED = "judged", "cost", "end", "short", "verify_unsupported"
"""What became of an offer: some of its ids were held against the target's choice (or appended
unread), its window would have cost too much, the reply ended first, it had fewer than two ids, or
the caches cannot be taken back."""

AWAY = 0.2
"""A step during which the consumer was away for more than this share of it is not timed."""


@define
class Counters:
    """What the loop counts.

    ``found_end``: forwards that brought no token but only the end.  ``in_flight``: steps that were
    dispatched and not read: one is left over where the reply ended meanwhile.
    """

    rounds: list[int] = field(factory=list)
    windows: int = 0
    steps: int = 0
    fill_events: int = 0
    truncations: int = 0
    wasted_samples: int = 0
    found_end: int = 0
    in_flight: int = 0
    span_lengths: list[int] = field(factory=list)
    injected_from: Counter[str] = field(factory=Counter)
    drafted_from: Counter[str] = field(factory=Counter)
    accepted_from: Counter[str] = field(factory=Counter)

    @property
    def without_tokens(self) -> int:
        """Forwards that brought no token, the reply being over."""
        return self.found_end + self.in_flight

    def fill(self, offers: Mapping[str, int], sources: Mapping[str, int]) -> dict[str, Any]:
        """Counters of asserted spans, and those of the ``sources`` themselves.

        ``events``: spans; ``injected``: their tokens, ``injected_from`` by origin; ``truncations``:
        spans cut by a clamp; ``wasted_samples``: steps whose sample a span replaced;
        ``branch_stops``: offers that end where known continuations fork.
        """
        return {
            "events": self.fill_events,
            "injected": self.injected_from.total(),
            "injected_from": dict(self.injected_from),
            "span_lengths": self.span_lengths,
            "truncations": self.truncations,
            "wasted_samples": self.wasted_samples,
            "branch_stops": offers["branch_stops"],
            **sources,
        }

    def spec(self, offers: Mapping[str, int]) -> dict[str, Any]:
        """Counters of verified spans.

        ``offers``: proposals that were made, and rounds that a drafter made or might have made;
        ``judged``: those of which the target decided an id at least, or that were appended unread;
        ``left_out``: those that the gate expected to cost more than they bring; ``dropped``: the
        rest, by reason.  ``windows``: forwards that judged drafts; ``drafted``: ids judged in them,
        ``accepted`` and ``rejected``; ``steps``: forwards of one token, one that only found the end
        included.  With a drafter its own counters beside them (docs/drafters.md).
        """
        drafted, accepted = self.drafted_from.total(), self.accepted_from.total()
        return {
            "offers": offers["offers"],
            "judged": offers[JUDGED],
            "left_out": offers[COST],
            "dropped": {why: offers[why] for why in (SHORT, END, UNSUPPORTED)},
            "windows": self.windows,
            "drafted": drafted,
            "accepted": accepted,
            "rejected": drafted - accepted,
            "drafted_from": dict(self.drafted_from),
            "accepted_from": dict(self.accepted_from),
            "steps": self.steps - self.in_flight,
            "verify_unsupported": offers[UNSUPPORTED],
        }

    def rounds_of(self, emitted: int) -> list[int]:
        """The rounds of the first ``emitted`` tokens: a burst may have been left in its middle."""
        kept: list[int] = []
        for count in self.rounds:
            if emitted <= 0:
                break
            kept.append(min(count, emitted))
            emitted -= count
        return kept


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
