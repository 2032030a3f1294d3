"""Where a reply stands in its grammar."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mlxfill import InputError
from mlxfill_constrain.vocabulary import check

if TYPE_CHECKING:
    from collections.abc import Callable

    from llguidance import LLMatcher
    from numpy.typing import NDArray


class Walk:
    """Takes the ids of a reply one after the other, and can go back.

    What may follow is a function of the ids alone.  Where the grammar forces text, its canonical
    tokens are the only ones that may: ``forced`` holds those that are due.  They are computed
    when the first of them is due and stay as they are until the last was taken, so it makes no
    difference whether they are taken one by one or all at once.
    """

    def __init__(self, matcher: LLMatcher, spell: Callable[[bytes], list[int]]) -> None:
        """``spell``: ids of a text, none of them a special token's (``Vocabulary.spelled``)."""
        self._matcher, self._spell = matcher, spell
        # After each number of ids taken: a forced span, and how much of it was taken.
        self._marks: list[tuple[tuple[int, ...], int]] = [(self._span(), 0)]

    @property
    def taken(self) -> int:
        """How many ids were taken."""
        return len(self._marks) - 1

    @property
    def forced(self) -> tuple[int, ...]:
        """Ids that must come next, in this order; empty where there is a choice."""
        span, done = self._marks[-1]
        return span[done:]

    @property
    def next_forced(self) -> int | None:
        """The first of them."""
        span, done = self._marks[-1]
        return span[done] if done < len(span) else None

    @property
    def accepting(self) -> bool:
        """Whether the reply may end here."""
        return self._matcher.is_accepting()

    @property
    def finished(self) -> bool:
        """Whether it can only end here."""
        return self._matcher.is_stopped()

    def take(self, token: int) -> None:
        """Go on by one id.  Raises ``InputError`` for one that may not come here."""
        forced = self.next_forced
        if (forced is not None and token != forced) or not self._matcher.consume_token(token):
            check(self._matcher)
            raise InputError(f"schema does not allow token {token} at {self.taken} of the reply")
        span, done = self._marks[-1]
        self._marks.append((span, done + 1) if done + 1 < len(span) else (self._span(), 0))

    def back(self, count: int) -> None:
        """Take back the last ``count`` ids."""
        if count:
            self._matcher.rollback(count)
            del self._marks[-count:]

    def allowed(self) -> NDArray[np.bool_]:
        """``[n]``, for each id of the tokenizer whether it may come next."""
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        check(self._matcher)
        return np.unpackbits(bits, bitorder="little").view(np.bool_)

    def _span(self) -> tuple[int, ...]:
        span = self._matcher.compute_ff_tokens()
        fitting = self._matcher.validate_tokens(span) if span else 0
        if span and not fitting:
            # Text that looks like a special token is tokenized as that one, which the grammar (and
            # even its mask) has no way to take: it is to be spelled out.
            span = self._spell(self._matcher.compute_ff_bytes())
            fitting = self._matcher.validate_tokens(span)
        check(self._matcher)
        return tuple(span[:fitting])
