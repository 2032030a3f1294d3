"""From a chat template and tools to rows.

The template is its own oracle: the same call is rendered with every beginning that a value or
a key may have, and what all renderings share, token for token, is fixed.  No tool-call syntax
is known here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from mlxfill import TemplateError
from mlxfill_fill_strict.attempts import first_arguments, with_values
from mlxfill_fill_strict.oracle import (
    EXAMPLE,
    KEY,
    NAME,
    OTHER_KEY,
    OTHER_VALUE,
    VALUE,
    Oracle,
    RefusedError,
)
from mlxfill_fill_strict.rows import Kind, Row, RowSet
from mlxfill_fill_strict.spans import (
    Ids,
    common_prefix,
    common_suffix,
    shared_length,
    singles_out,
)
from mlxfill_fill_strict.tools import Tool, read_tools

if TYPE_CHECKING:
    from mlxfill import Request

MOST_TOOLS = 32
LONGEST_SPAN = 64
SHORTEST_SPAN = 2
"""The engine injects no single token."""
LONGEST_CHOICE = 8
"""Most tokens that it may take to tell a tool or a key from all others."""


def compile_rows(request: Request) -> RowSet:
    """Everything that template and tools fix in replies to ``request``; never an error."""
    tools = read_tools(request.tools)
    if not tools:
        return RowSet(why="the tools are malformed" if request.tools else "no tools")
    if len(tools) > MOST_TOOLS:
        return RowSet(why=f"{len(tools)} tools; at most {MOST_TOOLS} are compiled")
    try:
        oracle = Oracle(
            request.render, request.tokenizer, request.tools or (), request.template_options
        )
        oracle.leave_out_tools([(tool.name, first_arguments(tool)[0]) for tool in tools])
        return Compiler(oracle, tools).compile()
    except (TemplateError, RefusedError) as error:
        return RowSet(why=str(error))


class Compiler:
    """Compiles the rows of one request's tools."""

    def __init__(self, oracle: Oracle, tools: Sequence[Tool]) -> None:
        """:raises RefusedError: the template refuses plain replies."""
        self._oracle, self._tools = oracle, tools
        self._plain = oracle.plain_replies()
        if len(self._plain) < 2:  # noqa: PLR2004 - nothing to compare
            raise RefusedError("the template refuses plain replies")
        example = oracle.example()[1]
        decided = oracle.decode(example[: self._decided(example)])
        self._has_marker = len(decided) <= oracle.decode(example).find(NAME)

    def compile(self) -> RowSet:
        """The rows, and what matching and the proof of a context need.

        :raises RefusedError: the template refuses calls of some tool.
        """
        oracle = self._oracle
        before, example = oracle.example()
        return RowSet(
            rows=tuple(row for row in self._rows() if self._is_fit(row)),
            before=before,
            delimiters=self._delimiters(),
            opening=oracle.opening,
            calling=oracle.calling,
            prompt=oracle.conversation.prompt,
            bare=oracle.conversation.tools is None,
            markup=self._markup(example),
        )

    # --- from the beginning of a call to its value ----------------------------------------

    def _rows(self) -> Iterator[Row]:
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
        yield from self._close_rows()
        yield from self._turn_end_rows()

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
        plain = [*self._plain, self._oracle.say(word), self._oracle.say(word + "s>")]
        return max(shared_length(span, ids) for ids in plain) + 1

    def _first_word(self, ids: Ids) -> str:
        """Text up to the end of the first run of letters: a plain reply may begin so, too."""
        text = self._oracle.decode(ids).lstrip()
        start = next((i for i, char in enumerate(text) if char.isalpha()), len(text))
        length = next((i for i, char in enumerate(text[start:]) if not char.isalpha()), 0)
        return text[: start + length]

    def _is_fit(self, row: Row) -> bool:
        return SHORTEST_SPAN <= len(row.emit) <= LONGEST_SPAN and self._oracle.has_letters(
            row.trigger
        )

    def _span(self, tool: Tool) -> Ids:
        """What every call of a tool begins with."""
        if tool.takes_none:
            return self._whole_call((tool.name, {}))
        return self._oracle.shared([(tool.name, each) for each in first_arguments(tool)])

    def _key_rows(self, tool: Tool, span: Ids) -> Iterator[Row]:
        """For each key of a closed schema: from where no other is left, up to its value."""
        if not tool.closed or tool.takes_one or tool.takes_none:
            return
        spans = [
            self._oracle.shared([(tool.name, each) for each in with_values(tool, key)])
            for key in tool.keys
        ]
        empty = None if tool.required else self._oracle.call((tool.name, {}))
        for key_span in spans:
            others = [other for other in spans if other is not key_span]
            others += [empty] if empty else []
            length = singles_out(key_span, others, len(span), LONGEST_CHOICE)
            if length:
                yield self._row(Kind.KEY, key_span, length)

    # --- the end of a call, and of a reply ------------------------------------------------

    def _whole_call(self, call: tuple[str, dict[str, object]]) -> Ids:
        """A call up to where another one, or the end of the turn, may follow."""
        alone = self._oracle.shared([call, call])
        return self._without_what_follows(alone, self._oracle.call(call, call))

    def _without_what_follows(self, alone: Ids, followed: Ids | None) -> Ids:
        """Cut a call where a reply that goes on with a second call differs.

        :param followed: None where the template takes one call only: then the end of the turn
            is what plain replies end with, too.
        """
        if followed is not None:
            return common_prefix([alone, followed])
        turn_end = common_suffix([alone, *self._plain[:2]])
        return alone[: len(alone) - len(turn_end)]

    def _close_rows(self) -> Iterator[Row]:
        """The end of a call after its value, where every call has exactly one."""
        markers = self._oracle.markers
        if not markers.can_read or not all(tool.takes_one for tool in self._tools):
            return
        first, *others = [
            [(tool.name, each) for each in with_values(tool, tool.keys[0])] for tool in self._tools
        ]
        # How a call ends does not depend on its tool: a few values of the others will do.
        calls = [*first, *(call for each in others for call in each[:2])]
        alone = [self._oracle.call(call, other_id=bool(i % 2)) for i, call in enumerate(calls)]
        followed = [self._oracle.call(call, EXAMPLE) for call in calls]
        close = self._without_what_follows(
            common_suffix(ids for ids in alone if ids),
            None if None in followed else common_suffix(ids for ids in followed if ids),
        )
        length = self._through_word(close)
        if length and self._oracle.decode(close).endswith(markers.end):
            yield Row(close[:length], close[length:], Kind.CLOSE)

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
        call = self._oracle.call(EXAMPLE) or ()
        markup = common_suffix([call, *self._plain[:2]])
        eos = self._oracle.eos_ids
        stop = next((i for i, token in enumerate(markup) if token in eos), len(markup))
        yield self._row(Kind.TURN_END, markup[:stop], 1)

    # --- beside the rows ------------------------------------------------------------------

    def _delimiters(self) -> frozenset[int]:
        """The first token after a value that is not the value's: at the end and in between."""
        found = set()
        for rest in ({}, {OTHER_KEY: VALUE}):
            pair = [
                self._oracle.call((NAME, {KEY: value, **rest})) or ()
                for value in (VALUE, OTHER_VALUE)
            ]
            after = (token for token in common_suffix(pair) if not self._oracle.is_blank(token))
            found |= {token for token in [next(after, None)] if token is not None}
        return frozenset(found - self._oracle.eos_ids)

    def _markup(self, example: Ids) -> frozenset[str]:
        """Pieces of the template's own text around a call: words with letters."""
        turn_end = common_suffix([example, *self._plain[:2]])
        text = self._oracle.decode(example[: len(example) - len(turn_end)])
        for given in (NAME, KEY, VALUE):
            text = text.replace(given, " ")
        pieces = {*text.split(), *self._oracle.markers.texts}
        return frozenset(piece for piece in pieces if any(map(str.isalpha, piece)))
