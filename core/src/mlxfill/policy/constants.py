"""Every number that the policy was tuned with, its unit and its reason."""

from __future__ import annotations

STAKE = 1.0
"""Steps that a request may lose on guesses before any was won."""
INTEREST, MOST_SAVED, MOST_OWED = 0.01, 2.0, 4.0
"""Steps that each plain step adds, the most that interest and earlier requests leave, and the most
that may be owed: a stall of the machine shall not end all guessing for good."""
CAUTION = 1.5
"""What a lost step counts: clocks err."""
FIRST_REST, LAST_REST = 16, 4096
"""Plain tokens between two tries of what did not pay; doubled after each failure."""

MARGIN = 1.03
"""A window must promise this much more per cost than a plain step: estimates are noisy."""
UNLIKELY = 0.02
FOLLOW = 0.15
"""Weight of a newly observed window time in the running cost of its size."""
BUBBLE = 0.08
"""First guess at the share of a step that is lost when the host waits before it dispatches."""
STALL, MANY, QUICKER = 2.0, 16, 1.2
"""A time counts no more than so many times what was to be expected: the machine was elsewhere; how
many plain steps say what one costs in the long run; and how far that may be above the newest."""
NEWEST = 9
"""Times that count: those that another process held up must not decide."""
LIKELY = 0.5
"""Where the next id is at least so likely, a window that should not pay is tried now and then:
costs may have been measured on a busy machine."""

BUCKETS = (0, 1, 2, 3, 4, 6, 9, 13, 21, 33)
PRIOR = (0.2, 0.25, 0.5, 0.62, 0.75, 0.85, 0.92, 0.95, 0.97, 0.98)
PRIOR_WEIGHT = 4.0
DECAY = 0.96
