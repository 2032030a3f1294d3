"""Every number that the policy was tuned with: its unit, and why it is what it is.

A *step* is a forward of one token; costs and budgets are told in steps.
"""

from __future__ import annotations

# --- what speculation may lose (budget) ---------------------------------------------------------

INITIAL = 1.0
"""Steps that a request may lose before it won any: 1 % of a reply of 100 tokens.  Twice as many may
be saved up, and four times as many owed, so that a stall does not end speculation for good."""
REFILL = 0.01
"""Steps that each plain step adds: what a long reply may lose, 1 %."""
CAUTION = 1.5
"""What a lost step counts, and one of a drafter that was not timed: clocks err."""

# --- whether a window pays (plan) ---------------------------------------------------------------

MARGIN = 1.03
"""Speedup that a window must promise: estimates are noisy."""
EXPLORE = 0.5
"""Chance from which on an offer that should not pay is tried: such a try costs half at most."""

# --- exploring (budget) -------------------------------------------------------------------------

FIRST_RETRY, LAST_RETRY = 16, 4096
"""Tokens between two tries of what did not pay: doubled by each failure."""
RETIME = 64
"""Windows in a row after which plain steps are timed again: the machine may have changed."""

# --- how often guesses are right (acceptance) ---------------------------------------------------

PRIOR = {0: 0.2, 1: 0.25, 2: 0.5, 3: 0.62, 4: 0.75, 6: 0.85, 9: 0.92, 13: 0.95, 21: 0.97, 33: 0.98}
"""Chance that a source's next id is right after so many right ones, as prompt lookup has it."""
WEIGHT = 4.0
"""Trials that it counts for: a few rounds must outweigh it."""
TRAINED = 0.9
"""Chance that a trained drafter is right, as one trial: someone made it and someone mounted it."""
DECAY = 0.96
"""What a trial counts after the next one: the newest 25 decide."""

# --- what things cost (cost, clock, drafter) ----------------------------------------------------

NEWEST = 9
"""Times that a median is taken of: four that other processes held up do not move it."""
ENOUGH = 3
"""Times that are taken before anything is bet on them: one may have been a stall."""
OUTLIER = 2.0
"""Times that a cost may exceed what was expected before the rest is taken for a stall."""
AWAY = 0.2
"""Share of a step for which the consumer may be away before the step is not timed."""
REPLY = 128
"""Tokens that a reply is expected to have before any has ended."""

# --- calibration --------------------------------------------------------------------------------

SIZES = (8, 2, 4, 16, 32)
"""Ids of the windows that are timed at the start; the first one always is."""
CALIBRATION_S = 0.5
"""Seconds that it may take: a start waits for it."""
BUSY = 1.3
"""A stored cost so many times that of now was measured on a busy machine."""
