"""What guesses how one history of token ids goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol


class Guesser(Protocol):
    """Guesses how one history goes on."""

    @property
    def history(self) -> Sequence[int]:
        """All ids so far, oldest first."""

    @property
    def evidence(self) -> int:
        """How many ids at the end of the history the newest guess explains."""

    @property
    def state(self) -> tuple[int, ...]:
        """What it remembers besides the history, for ``resume``."""

    def resume(self, state: tuple[int, ...]) -> None:
        """Remember that again, after ``seed`` with the history.  ``ValueError`` for nonsense."""

    def seed(self, ids: Iterable[int]) -> None:
        """Add ids that were not guessed at: a prompt, or a restored history."""

    def extend(self, ids: Iterable[int]) -> None:
        """Add ids in the order in which they were generated."""

    def guess(self) -> Sequence[int]:
        """The ids that may come next, oldest first; none when nothing is known."""


class RuleGuesser:
    """Guesses by a rule, such as a grammar that knows what must follow, in place of a lookup.

    ``rule(history)`` returns the ids that may come next.
    """

    evidence = 0  # a rule knows what follows, whatever came before
    state = ()

    def __init__(self, rule: Callable[[Sequence[int]], Sequence[int]]) -> None:
        self.history: list[int] = []
        self._rule = rule

    def resume(self, state: tuple[int, ...]) -> None:
        """Nothing to remember."""

    def seed(self, ids: Iterable[int]) -> None:
        """Add ids."""
        self.history += ids

    def extend(self, ids: Iterable[int]) -> None:
        """Add ids."""
        self.history += ids

    def guess(self) -> Sequence[int]:
        """What the rule says."""
        return self._rule(self.history)
