"""Rows at the end of a call and of a reply."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from mlxfill_fill_strict.attempts import with_values
from mlxfill_fill_strict.oracle import EXAMPLE, VALUE
from mlxfill_fill_strict.rows import Kind, Row
from mlxfill_fill_strict.spans import Ids, common_prefix, common_suffix

if TYPE_CHECKING:
    from mlxfill_fill_strict.oracle import Call, Oracle
    from mlxfill_fill_strict.tools import Tool


class Endings:
    """Finds where calls and replies end."""

    def __init__(self, oracle: Oracle, tools: Sequence[Tool]) -> None:
        self._oracle, self._tools = oracle, tools

    def rows(self) -> Iterator[Row]:
        """At most one row for the end of a call, and one for the end of a reply."""
        yield from self._close_rows()
        yield from self._turn_end_rows()

    def without_next(self, ids: Ids, call: Call) -> Ids:
        """The ids of a complete call up to where another one, or the turn's end, may follow."""
        return self._cut(ids, self._oracle.call(call, call))

    def _cut(self, alone: Ids, followed: Ids | None) -> Ids:
        """Cut a call where a reply that goes on with a second call differs.

        :param followed: None where the template takes one call only: then the end of the turn
            is what plain replies end with, too.
        """
        if followed is not None:
            return common_prefix([alone, followed])
        turn_end = common_suffix([alone, *self._oracle.plain[:2]])
        return alone[: len(alone) - len(turn_end)]

    def _close_rows(self) -> Iterator[Row]:
        """The end of a call after its value, where every call has exactly one."""
        markers = self._oracle.markers
        if not markers.start or not all(tool.takes_one for tool in self._tools):
            return
        alone, followed = self._replies(), self._replies(EXAMPLE)
        close = self._cut(common_suffix(alone), common_suffix(followed) if followed else None)
        length = self._through_word(close)
        if length and self._oracle.decode(close).endswith(markers.end):
            yield Row(close[:length], close[length:], Kind.CLOSE)

    def _replies(self, *after: Call) -> list[Ids]:
        """Replies with a call, then ``after``, for every value of the only argument.

        How a call ends does not depend on its tool: for the tools after the first, less will do.
        """
        first, *others = self._tools
        found = self._oracle.replies(first.name, with_values(first, first.keys[0]), *after)
        for tool in others:
            attempts = with_values(tool, tool.keys[0])
            for arguments in (attempts.example, attempts.with_text(VALUE)):
                found.append(self._oracle.call((tool.name, arguments), *after))
        return [ids for ids in found if ids]

    def _through_word(self, ids: Ids) -> int:
        """Ids through the one that ends the first word, so that no longer word is meant; or 0."""
        for length in range(1, len(ids) + 1):
            text = self._oracle.decode(ids[:length])
            start = next((i for i, char in enumerate(text) if char.isalpha()), len(text))
            if any(not (char.isalnum() or char in "_-") for char in text[start:]):
                return length
        return 0

    def _turn_end_rows(self) -> Iterator[Row]:
        """Markup that ends a reply, up to the token that ends generation."""
        markup = common_suffix([self._oracle.example[1], *self._oracle.plain[:2]])
        eos = self._oracle.eos_ids
        stop = next((i for i, token in enumerate(markup) if token in eos), len(markup))
        first = next((i for i in range(stop) if self._oracle.has_letters(markup[: i + 1])), stop)
        yield Row(markup[: first + 1], markup[first + 1 : stop], Kind.TURN_END)
