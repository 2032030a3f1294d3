"""What is known of the replies to one set of tools."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from attrs import frozen

if TYPE_CHECKING:
    from mlxfill.tool_calls import CallWay
    from mlxfill_fill_strict.spans import Ids


class Kind(StrEnum):
    """What a row completes."""

    SCAFFOLD = "scaffold"
    """The beginning of a call, up to where the tools' names part."""
    NAME = "name"
    """A tool's name and what follows it, once no other tool is left."""
    KEY = "key"
    """An argument's key and what follows it, once no other key is left."""
    CLOSE = "close"
    """The end of a call, once the end of its argument is complete."""
    TURN_END = "turn-end"
    """The markup after a reply."""


_BY_TEMPLATE = frozenset({Kind.SCAFFOLD, Kind.CLOSE, Kind.TURN_END})


@frozen
class Row:
    """After ``trigger`` comes ``emit``, whatever the model is about to say."""

    trigger: Ids
    emit: Ids
    kind: Kind

    @property
    def origin(self) -> str:
        """``template`` or ``schema``: which of the two fixes the span."""
        return "template" if self.kind in _BY_TEMPLATE else "schema"


@frozen
class RowSet:
    """Everything compiled for one template, tools and render options.

    ``before``: ids that stand right before a call in a reply; ``delimiters``: ids that end a
    value; ``opening``: text that opens a reply in the prompt.  ``calling`` and ``bare`` (no tools
    in the prompt) say how to render a call back; ``markup``: pieces of the template's text
    around a call.  ``why``: the reason why there are no rows.
    """

    rows: tuple[Row, ...] = ()
    before: Ids = ()
    delimiters: frozenset[int] = frozenset()
    opening: str = ""
    calling: CallWay | None = None
    bare: bool = False
    markup: frozenset[str] = frozenset()
    why: str = ""
