"""Whether a drafter takes its own refused drafts for text that was said."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlxfill_testing.conformance.breach import Breach
from mlxfill_testing.conformance.sessions.playing import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mlxfill_testing.conformance.rows.batch import Batch

DEPTH = 4
"""Ids that are asked for at once."""
TRIALS, LENGTH = 4, 12
"""So often it must go wrong: what a drafter guesses by chance it hits once; ids of each trial."""
NEW = 50
"""Ids from here on no prompt has."""


def check_disbelief(begin: Callable[[Sequence[int]], Batch]) -> None:
    """Refuse drafts for two new ids, and ask again behind the first and the last of the refused.

    The new ids never followed these: whoever guesses them there believes its own drafts.

    :param begin: makes a batch of one row from a prompt.
    :raises Breach: it does, in every trial.
    """
    said = [_believed(begin, trial) for trial in range(TRIALS)]
    if all(said):
        raise Breach(said[0])


def _believed(begin: Callable[[Sequence[int]], Batch], trial: int) -> str:
    """What it did wrong; "" where it did right or drafted nothing."""
    ids = [trial * LENGTH + at for at in range(LENGTH)]
    prompt = [*ids, *ids[:8]]
    new, second, third = (NEW + trial * 3 + at for at in range(3))
    batch = begin(prompt)
    refused = batch.go_on(DEPTH, new)
    if not refused or {new, second} & set(refused):
        return ""
    for token in (second, third):
        batch.go_on(DEPTH, token)
    found = ""
    for token in dict.fromkeys((refused[-1], refused[0])):
        batch.go_on(DEPTH, token)
        guessed = batch.go_on(DEPTH, third)
        odd = next((each for each in guessed if each in {new, second}), None)
        if odd is not None:
            found = (
                f"with the prompt {shown(prompt)}, the drafter drafted {refused}, and {new},"
                f" {second}, {third} came instead; asked after {token} it drafted {guessed}, as if"
                f" {odd} stood behind it: drafts that were refused must leave no trace"
            )
    batch.end()
    return found
