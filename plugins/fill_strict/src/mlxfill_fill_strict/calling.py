"""How a template wants a tool call to be put: found by trying."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any, TypeAlias

from attrs import evolve, frozen

Call: TypeAlias = tuple[str, Mapping[str, Any]]
"""A tool's name and its arguments."""

_IDS = (
    ("a1b2c3d4{index}", "Z9y8x7w6{index}"),  # nine letters and digits
    ("functions.{name}:{index}", "functions.{name}:4{index}"),  # the id names the tool
    None,
)
"""Forms of call ids that templates ask for; two of each, because the model may choose another."""
_CONTENTS: tuple[dict[str, Any], ...] = ({"content": ""}, {"content": None})
_REASONINGS: tuple[dict[str, Any], ...] = ({}, {"reasoning_content": "Yes."})


@frozen
class Calling:
    """One way to put a call into a message.  ``as_text``: arguments as a JSON string."""

    fields: Mapping[str, Any]
    ids: tuple[str, str] | None
    as_text: bool = False

    def message(
        self, calls: Sequence[Call], *, other_id: bool = False, ids: Sequence[str | None] = ()
    ) -> dict[str, Any]:
        """An assistant's turn that makes ``calls``.

        :param other_id: take the second of the two ids.
        :param ids: ids that the model itself gave.
        """
        given = [*ids, *[None] * len(calls)]
        items = [
            self._item(call, index, given[index], other_id=other_id)
            for index, call in enumerate(calls)
        ]
        return {"role": "assistant", **self.fields, "tool_calls": items}

    def _item(self, call: Call, index: int, given: str | None, *, other_id: bool) -> dict[str, Any]:
        name, arguments = call
        function = {"name": name, "arguments": as_json(arguments) if self.as_text else arguments}
        item = {"type": "function", "function": function}
        if self.ids is None:
            return item
        return {"id": given or self.ids[other_id].format(name=name, index=index), **item}


def ways_to_call() -> Iterator[tuple[Calling, Calling]]:
    """Every way to try, the usual ones first: with a mapping and with a string of arguments."""
    for reasoning, content, ids in product(_REASONINGS, _CONTENTS, _IDS):
        calling = Calling({**reasoning, **content}, ids)
        yield calling, evolve(calling, as_text=True)


def as_json(arguments: Mapping[str, Any]) -> str:
    """Arguments as the JSON string that chat APIs hand over."""
    return json.dumps(arguments, ensure_ascii=False)


def says(text: str, call: Call, value: str) -> bool:
    """Whether a rendering holds a call as the model would write it.

    Name and value must be there, and the arguments neither JSON inside a JSON string nor a
    Python literal: that is what templates make of a form that they do not expect.
    """
    name, arguments = call
    escaped = json.dumps(as_json(arguments), ensure_ascii=False)[1:-1]
    return name in text and value in text and escaped not in text and repr(arguments) not in text
