"""What to try: values, keys and plain replies that begin in every way tokenizers tell apart."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final

from attrs import frozen

if TYPE_CHECKING:
    from mlxfill_fill_strict.tools import Tool

ODD_TEXTS: Final = (
    "alpha",
    "Omicron",
    "7 days",
    '"so"',
    "/etc",
    "{it}",
    "<b>",
    "-x",
    "\nline",
    " pad",
    "日本",
    "",
)
"""Texts for a value or a key; the first two differ in their first and their last letter."""
_NUMBER: Final = 7
_SAMPLES: Final[Mapping[str, tuple[Any, ...]]] = {
    "array": ([_NUMBER], ["alpha"], []),
    "boolean": (True, False),
    "integer": (),
    "null": (None,),
    "number": (),
    "object": ({"alpha": _NUMBER}, {}),
    "string": (),
}
"""Values of the types that are neither text nor number: those are always tried."""

PLAIN_REPLIES: Final = (
    "alpha",
    "Omega 9",
    "42 of them",
    '"So it is"',
    "(it is)",
    "{\n",
    '{"name": "Ada", "age": 36}',
    '[{"name": "Ada"}]',
    "```json\n{}\n```",
    "<b>alpha</b>",
    "# Alpha",
    "- alpha",
    "**alpha**",
    "/etc/hosts",
    "日本",
)


class Place(Enum):
    """Where in an argument object the odd texts go."""

    KEY = auto()
    VALUE = auto()


@frozen
class Attempts:
    """Argument objects to compare: ``fixed`` ones, and one for each odd text in ``place``."""

    fixed: tuple[Mapping[str, Any], ...]
    place: Place | None = None
    key: str = ""

    @property
    def example(self) -> Mapping[str, Any]:
        """One of them."""
        return self.fixed[0]

    def with_text(self, text: str) -> Mapping[str, Any]:
        """The object with a text in the place."""
        return {self.key: text} if self.place is Place.VALUE else {text: ODD_TEXTS[0]}


def first_arguments(tool: Tool) -> Attempts:
    """Argument objects whose renderings share exactly what every call of ``tool`` begins with."""
    if tool.takes_one:
        return with_values(tool, tool.keys[0])
    keys = dict.fromkeys([*tool.keys, *sorted(tool.required)])
    fixed = [{key: ODD_TEXTS[0]} for key in keys]
    empty: list[dict[str, str]] = [] if tool.required else [{}]
    return Attempts((*fixed, *empty), None if tool.closed else Place.KEY)


def with_values(tool: Tool, key: str) -> Attempts:
    """Argument objects with one key and values that begin in every way."""
    schema = (tool.parameters.get("properties") or {}).get(key)
    wanted = schema.get("type") if isinstance(schema, Mapping) else None
    names = wanted if isinstance(wanted, list) else [wanted]
    known = [name for name in names if isinstance(name, str) and name in _SAMPLES]
    legal = [value for name in known or _SAMPLES for value in _SAMPLES[name]]
    return Attempts(tuple({key: value} for value in (_NUMBER, -_NUMBER, *legal)), Place.VALUE, key)
