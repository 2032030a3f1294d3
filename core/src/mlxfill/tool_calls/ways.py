"""How a chat template wants tool calls to be put into a message: the ways to try."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any, TypeAlias

from attrs import evolve, frozen

Call: TypeAlias = tuple[str, Mapping[str, Any]]
"""A tool's name and its arguments."""

NAME, KEY, TEXT = "zqxj_tool", "uxzh", "kjhq"
EXAMPLE: Call = (NAME, {KEY: TEXT})
"""A call of words that no template has."""

_IDS = (
    ("a1b2c3d4{index}", "Z9y8x7w6{index}"),  # nine letters and digits
    ("functions.{name}:{index}", "functions.{name}:4{index}"),  # the id names the tool
    None,
)
"""Forms of call ids that templates ask for; two of each, because the model may choose another."""
_CONTENTS: tuple[dict[str, Any], ...] = ({"content": ""}, {"content": None})
_REASONINGS: tuple[dict[str, Any], ...] = ({}, {"reasoning_content": "Yes."})


@frozen
class CallWay:
    """One way to put calls into a message of an assistant.

    ``fields``: what else the message holds.
    ``ids``: two patterns of a call's id; None for calls without ids.
    ``as_text``: arguments are a JSON string, not a mapping.
    """

    fields: Mapping[str, Any]
    ids: tuple[str, str] | None
    as_text: bool = False

    def message(
        self, calls: Sequence[Call], *, other_id: bool = False, ids: Sequence[str | None] = ()
    ) -> dict[str, Any]:
        """An assistant's turn that makes ``calls``.

        :param other_id: take the second of the two patterns.
        :param ids: ids that the model itself gave.
        """
        given = [*ids, *[None] * len(calls)]
        items = []
        for index, (name, arguments) in enumerate(calls):
            put = as_json(arguments) if self.as_text else arguments
            item = {"type": "function", "function": {"name": name, "arguments": put}}
            own = given[index] or self.id_of(name, index, other_id=other_id)
            items.append({"id": own, **item} if self.ids else item)
        return {"role": "assistant", **self.fields, "tool_calls": items}

    def id_of(self, name: str, index: int, *, other_id: bool = False) -> str:
        """The id of the call number ``index``, "" for none."""
        return self.ids[other_id].format(name=name, index=index) if self.ids else ""


def ways_to_call() -> Iterator[tuple[CallWay, CallWay]]:
    """Every way to try, the usual ones first: with a mapping and with a string of arguments."""
    for reasoning, content, ids in product(_REASONINGS, _CONTENTS, _IDS):
        way = CallWay({**reasoning, **content}, ids)
        yield way, evolve(way, as_text=True)


def as_json(arguments: Mapping[str, Any]) -> str:
    """Arguments as the JSON string that chat APIs hand over."""
    return json.dumps(arguments, ensure_ascii=False)


def holds_example(text: str | None) -> bool:
    """Whether a rendering holds the example as the model would write it.

    Name and value must be there, and the arguments neither JSON inside a JSON string nor a
    Python literal: that is what templates make of a form that they do not expect.
    """
    if not text:
        return False
    _, arguments = EXAMPLE
    escaped = json.dumps(as_json(arguments))[1:-1]
    return NAME in text and TEXT in text and escaped not in text and repr(arguments) not in text
