"""What the decode loop counts and times."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from attrs import define, field

if TYPE_CHECKING:
    from collections.abc import Mapping

JUDGED, COST, END, SHORT, UNSUPPORTED = "judged", "cost", "end", "short", "verify_unsupported"
"""What became of an offer: some of its ids were held against the target's choice (or appended
unread), its window would have cost too much, the reply ended first, it had fewer than two ids, or
the caches cannot be taken back."""


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

    def fill(self, sources: Mapping[str, int]) -> dict[str, Any]:
        """Counters of asserted spans, and those of the ``sources`` themselves.

        ``events``: spans; ``injected``: their tokens, ``injected_from`` by origin; ``truncations``:
        spans cut by a clamp; ``wasted_samples``: steps whose sample a span replaced.
        """
        return {
            "events": self.fill_events,
            "injected": self.injected_from.total(),
            "injected_from": dict(self.injected_from),
            "span_lengths": self.span_lengths,
            "truncations": self.truncations,
            "wasted_samples": self.wasted_samples,
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
