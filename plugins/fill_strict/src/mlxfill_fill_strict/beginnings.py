"""Rows from the beginning of a call to its value: scaffold, names and keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from mlxfill_fill_strict.attempts import first_arguments, with_values
from mlxfill_fill_strict.oracle import NAME
from mlxfill_fill_strict.rows import Kind, Row
from mlxfill_fill_strict.spans import Ids, common_prefix, shared_length, singles_out

if TYPE_CHECKING:
    from mlxfill_fill_strict.endings import Endings
    from mlxfill_fill_strict.oracle import Oracle
    from mlxfill_fill_strict.tools import Tool

LONGEST_CHOICE = 8
"""Most tokens that it may take to tell a tool or a key from all others."""


class Beginnings:
    """Finds what calls of each tool begin with, and after which ids that is certain."""

    def __init__(self, oracle: Oracle, tools: Sequence[Tool], endings: Endings) -> None:
        self._oracle, self._tools, self._endings = oracle, tools, endings
        example = oracle.example[1]
        decided = oracle.decode(example[: self._decided(example)])
        self._has_marker = len(decided) <= oracle.decode(example).find(NAME)

    def rows(self) -> Iterator[Row]:
        """One scaffold row, and a row for each name and key that tokens can single out.

        :raises RefusedError: the template refuses calls of some tool.
        """
        spans = [self._span(tool) for tool in self._tools]
        scaffold = common_prefix(spans)
        only = self._tools[0] if len(spans) == 1 else None
        if only or self._has_marker:
            yield self._row(Kind.SCAFFOLD, scaffold, 1, only)
        for tool, span in zip(self._tools, spans, strict=True):
            others = [other for other in spans if other is not span]
            length = singles_out(span, others, len(scaffold), LONGEST_CHOICE) if others else None
            if length:
                yield self._row(Kind.NAME, span, length, tool)
            yield from self._key_rows(tool, span)

    def _span(self, tool: Tool) -> Ids:
        """What every call of a tool begins with."""
        span = self._oracle.shared(tool.name, first_arguments(tool))
        return self._endings.without_next(span, (tool.name, {})) if tool.takes_none else span

    def _key_rows(self, tool: Tool, span: Ids) -> Iterator[Row]:
        """For each key of a closed schema: from where no other is left, up to its value."""
        if not tool.closed or tool.takes_one or tool.takes_none:
            return
        spans = [self._oracle.shared(tool.name, with_values(tool, key)) for key in tool.keys]
        empty = None if tool.required else self._oracle.call((tool.name, {}))
        for key_span in spans:
            others = [other for other in spans if other is not key_span]
            others += [empty] if empty else []
            length = singles_out(key_span, others, len(span), LONGEST_CHOICE)
            if length:
                yield self._row(Kind.KEY, key_span, length)

    def _row(self, kind: Kind, span: Ids, length: int, tool: Tool | None = None) -> Row:
        """A row whose trigger are the first ``length`` ids of ``span``, or more.

        More, until the reply can be no plain one and some token has a letter; where nothing but
        the name of ``tool`` marks a call, until the name is over.
        """
        name = "" if tool is None or self._has_marker else tool.name
        length = max(length, self._decided(span))
        while length < len(span) and not self._is_call(span[:length], name):
            length += 1
        return Row(span[:length], span[length:], kind)

    def _is_call(self, ids: Ids, name: str) -> bool:
        """Whether some token has a letter, and ``name`` is there and over."""
        over = self._oracle.decode(ids).partition(name)[2] if name else "yes"
        return bool(over) and self._oracle.has_letters(ids)

    def _decided(self, span: Ids) -> int:
        """Ids of a call after which it can be no plain reply."""
        word = self._first_word(span)
        plain = [*self._oracle.plain, self._oracle.say(word), self._oracle.say(word + "s>")]
        return max(shared_length(span, ids) for ids in plain) + 1

    def _first_word(self, ids: Ids) -> str:
        """Text up to the end of the first run of letters: a plain reply may begin so, too."""
        text = self._oracle.decode(ids).lstrip()
        start = next((i for i, char in enumerate(text) if char.isalpha()), len(text))
        length = next((i for i, char in enumerate(text[start:]) if not char.isalpha()), 0)
        return text[: start + length]
