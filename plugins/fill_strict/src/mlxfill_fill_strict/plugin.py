"""The entry point ``fill-strict``: a proposal source and delimiters for each request with tools."""

from __future__ import annotations

from mlxfill import ProposalSource, Request, hookimpl
from mlxfill.tool_calls import CallProbe
from mlxfill_fill_strict.compiled import compiled_rows
from mlxfill_fill_strict.context import Context
from mlxfill_fill_strict.opening import begun_reply
from mlxfill_fill_strict.reading import CallReader, Markers
from mlxfill_fill_strict.rows import RowSet
from mlxfill_fill_strict.settings import StrictSettings
from mlxfill_fill_strict.source import StrictSource
from mlxfill_fill_strict.tools import read_tools

MLXFILL_API = 2


@hookimpl
def mlxfill_settings() -> type[StrictSettings]:
    """The table ``[plugins.fill-strict]``."""
    return StrictSettings


@hookimpl
def mlxfill_delimiters(request: Request) -> frozenset[int] | None:
    """Ids that end a value in a tool call of this template."""
    return (request.tools and compiled_rows(request).delimiters) or None


@hookimpl(tryfirst=True)  # fixed text is the surest
def mlxfill_proposal_sources(
    request: Request, settings: StrictSettings | None
) -> list[ProposalSource] | None:
    """One source, where template and tools fix anything."""
    compiled = compiled_rows(request) if request.tools else RowSet()
    if compiled.calling is None or not compiled.rows:
        return None
    markers = Markers.of(request.tokenizer)
    begun = begun_reply(request, compiled.opening, markers)
    if begun is None:
        return None
    tools = request.tools or ()
    shown = None if compiled.bare else tools
    reader = CallReader(
        markers=markers,
        probe=lambda: CallProbe(request.render, request.tokenizer, shown, request.template_options),
        way=compiled.calling,
        tools={tool.name: tool for tool in read_tools(tools)},
        raw_tools=tools,
        markup=compiled.markup,
    )
    context = Context(markers, reader, begun.text)
    return [StrictSource(compiled, context, settings or StrictSettings(), begun.ids)]
