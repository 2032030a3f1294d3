"""From a chat template and tools to rows.

The template is its own oracle: the same call is rendered with every beginning that a value or
a key may have, and what all renderings share, token for token, is fixed.  No tool-call syntax
is known here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlxfill import TemplateError
from mlxfill.tool_calls import CallProbe
from mlxfill_fill_strict.attempts import first_arguments
from mlxfill_fill_strict.beginnings import Beginnings
from mlxfill_fill_strict.endings import Endings
from mlxfill_fill_strict.oracle import (
    KEY,
    NAME,
    OTHER_KEY,
    OTHER_VALUE,
    VALUE,
    Oracle,
    RefusedError,
)
from mlxfill_fill_strict.rows import Row, RowSet
from mlxfill_fill_strict.spans import common_suffix
from mlxfill_fill_strict.tools import read_tools

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlxfill import Request
    from mlxfill_fill_strict.tools import Tool

MOST_TOOLS = 128
"""Each takes about 5 ms, once; agents with several MCP servers have 40 to 100."""
LONGEST_SPAN = 64
SHORTEST_SPAN = 2
"""The engine injects no single token."""


def compile_rows(request: Request) -> RowSet:
    """Everything that template and tools fix in replies to ``request``; never an error."""
    tools = read_tools(request.tools)
    if not tools:
        return RowSet(why="the tools are malformed" if request.tools else "no tools")
    if len(tools) > MOST_TOOLS:
        return RowSet(why=f"{len(tools)} tools; at most {MOST_TOOLS} are compiled")
    given, options = request.tools or (), request.template_options
    try:
        oracle = Oracle(CallProbe(request.render, request.tokenizer, given, options))
        oracle.leave_out_tools([(tool.name, first_arguments(tool).example) for tool in tools])
        return _compile(oracle, tools)
    except (TemplateError, RefusedError) as error:
        return RowSet(why=str(error))


def _compile(oracle: Oracle, tools: Sequence[Tool]) -> RowSet:
    """The rows, and what matching and the proof of a context need."""
    endings = Endings(oracle, tools)
    rows = [*Beginnings(oracle, tools, endings).rows(), *endings.rows()]
    return RowSet(
        rows=tuple(row for row in rows if _is_fit(oracle, row)),
        before=oracle.example[0],
        delimiters=_delimiters(oracle),
        opening=oracle.opening,
        calling=oracle.way,
        bare=oracle.probe.tools is None,
        markup=_markup(oracle),
    )


def _is_fit(oracle: Oracle, row: Row) -> bool:
    return SHORTEST_SPAN <= len(row.emit) <= LONGEST_SPAN and oracle.has_letters(row.trigger)


def _delimiters(oracle: Oracle) -> frozenset[int]:
    """The first token after a value that is not the value's: at the end and in between."""
    found = set()
    for rest in ({}, {OTHER_KEY: VALUE}):
        pair = [oracle.call((NAME, {KEY: value, **rest})) or () for value in (VALUE, OTHER_VALUE)]
        after = [token for token in common_suffix(pair) if not oracle.is_blank(token)]
        found.update(after[:1])
    return frozenset(found - oracle.eos_ids)


def _markup(oracle: Oracle) -> frozenset[str]:
    """Pieces of the template's own text around a call: words with letters."""
    call = oracle.example[1]
    turn_end = common_suffix([call, *oracle.plain[:2]])
    text = oracle.decode(call[: len(call) - len(turn_end)])
    for given in (NAME, KEY, VALUE):
        text = text.replace(given, " ")
    pieces = {*text.split(), *oracle.markers.texts}
    return frozenset(piece for piece in pieces if any(map(str.isalpha, piece)))
