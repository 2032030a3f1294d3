"""How a template writes a text in one place of a call: learnt once, used for every tool."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mlxfill_fill_strict.attempts import ODD_TEXTS
from mlxfill_fill_strict.spans import shared_length


class Slot:
    """A place in a call where texts go.

    Rendering is slow, and a template writes the same text in the same way in every call.  So the
    odd texts are rendered in one call; for the next one, two renderings tell what stands before
    and after the place, and prove that what was learnt holds there, too.
    """

    def __init__(self) -> None:
        self._written: list[str] = []

    def fill(self, render: Callable[[str], str | None]) -> list[str | None]:
        """The call with each of the odd texts in the place; None for those that are refused.

        :param render: the call with a text in the place.
        """
        first, second = (render(text) or "" for text in ODD_TEXTS[:2])
        before = first[: shared_length(first, second)]
        after = first[len(first) - shared_length(first[::-1], second[::-1]) :]
        if self._written:
            known = [before + written + after for written in self._written]
            if known[:2] == [first, second]:
                return [*known]
        rendered = [render(text) for text in ODD_TEXTS]
        if not self._written:
            self._written = _between(before, after, rendered)
        return rendered


def _between(before: str, after: str, texts: Sequence[str | None]) -> list[str]:
    """What stands between two texts; nothing at all unless that is all that differs."""
    size = len(before) + len(after)
    if not all(
        text and len(text) >= size and text.startswith(before) and text.endswith(after)
        for text in texts
    ):
        return []
    return [text[len(before) : len(text) - len(after)] for text in texts if text]
