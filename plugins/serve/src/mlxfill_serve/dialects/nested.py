"""What the objects of a request hold, and nothing heeds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from mlxfill_serve import bodies as chat
from mlxfill_serve.dialects.conversions import DESCRIBING
from mlxfill_serve.dialects.table import (
    ITEM,
    MESSAGE,
    PART,
    STREAM_OPTIONS,
    THOUGHT,
    TOOL,
    Field,
)
from mlxfill_serve.responses import bodies as responses

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

ROWS: dict[type[BaseModel], tuple[Field, ...]] = {
    chat.Message: MESSAGE,
    chat.TextPart: PART,
    chat.StreamOptions: STREAM_OPTIONS,
    responses.MessageItem: ITEM,
    responses.ReasoningItem: ITEM,
    responses.CallItem: ITEM,
    responses.ResultItem: ITEM,
    responses.ThoughtPart: THOUGHT,
    responses.FunctionTool: TOOL,
}
"""What is known beside the fields that are heeded; whatever else an object holds is told."""
SHOWN = (chat.Tool, chat.Function, chat.Call, chat.CalledFunction)
"""Objects that the chat template is given with all that they hold."""
_TOLD = Field("", told=True)


def in_vain(value: object, place: str = "") -> Iterator[str]:
    """Places of what nothing heeds, in a body that has been checked.

    :raises ApiError: 400 for what cannot be left out.
    """
    if isinstance(value, list):
        for at, each in enumerate(value):
            yield from in_vain(each, f"{place}{at}.")
    elif isinstance(value, BaseModel):
        if not isinstance(value, SHOWN):
            yield from _unknown(value.model_extra or {}, ROWS.get(type(value), ()), place)
        for name in type(value).model_fields:
            yield from in_vain(getattr(value, name), f"{place}{name}.")
        yield from _loose(value, place)


def _loose(value: BaseModel, place: str) -> Iterator[str]:
    """What stands in fields that are no objects of their own."""
    if isinstance(value, chat.Asked):
        yield from _of_format(value.response_format, f"{place}response_format.")
    elif isinstance(value, responses.TextOptions):
        yield from _of_format(value.format, f"{place}format.")
    elif isinstance(value, responses.ResponsesBody):
        wanted = enumerate(value.include or ())
        yield from (f"{place}include.{at}" for at, each in wanted if each != responses.LOGPROBS)


def _of_format(given: Mapping[str, Any] | None, place: str) -> Iterator[str]:
    if given is None or "type" not in given:
        return
    heeded = {"type"}
    if given["type"] == "json_schema":
        inner = given.get("json_schema")
        if isinstance(inner, dict):
            heeded |= {"json_schema"}
            yield from _beside(inner, {"schema"} | DESCRIBING, f"{place}json_schema.")
        else:
            heeded |= {"schema"} | DESCRIBING
    yield from _beside(given, heeded, place)


def _beside(given: Mapping[str, Any], heeded: Iterable[str], place: str) -> Iterator[str]:
    others = {name: value for name, value in given.items() if name not in heeded}
    return _unknown(others, (), place)


def _unknown(given: Mapping[str, Any], rows: Iterable[Field], place: str) -> Iterator[str]:
    known = {each.name: each for each in rows}
    for name, value in given.items():
        row = known.get(name, _TOLD)
        if not row.is_neutral(value):
            row.check(f"{place}{name}")
            if row.told:
                yield f"{place}{name}"
