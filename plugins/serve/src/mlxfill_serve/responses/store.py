"""What was said in earlier responses, while there is room for it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from attrs import define, field, frozen

from mlxfill_serve.errors import ApiError
from mlxfill_serve.responses.bodies import ITEMS, MessageItem, ReferenceItem

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mlxfill_serve.responses.bodies import Item, ResponsesBody

RESPONSES = 1024
SIZE = 32_000_000
"""Bytes.  What is kept is JSON, since objects of it take many times its size."""


@frozen
class Kept:
    """A conversation up to a response, and the items of that response by their ids."""

    conversation: bytes
    output: dict[str, bytes]

    @property
    def size(self) -> int:
        """Bytes."""
        return len(self.conversation) + sum(map(len, self.output.values()))


@define
class ResponseStore:
    """The newest responses, in the memory of this process.  Used in the event loop alone."""

    longest: int
    """Bytes of a conversation: as many as a request may have."""
    responses: int = RESPONSES
    size: int = SIZE
    _kept: dict[str, Kept] = field(factory=dict, init=False)
    _held: int = field(default=0, init=False)

    def said(self, body: ResponsesBody) -> list[Item]:
        """The whole conversation of a request, without references.

        :raises ApiError: it goes on from what is not kept, or is too long.
        """
        given = body.input
        items = [MessageItem(role="user", content=given)] if isinstance(given, str) else given
        conversation = [*self._before(body.previous_response_id), *self._resolved(items)]
        if conversation != items and len(_json(conversation)) > self.longest:
            said = f"the conversation is longer than {self.longest} bytes: leave some of it out"
            raise ApiError(413, said, param="input", code="request_too_large")
        return conversation

    def keep(self, items: Sequence[Item], name: str, output: Sequence[dict[str, Any]]) -> None:
        """Keep a response of this name, and forget the oldest where room is short."""
        conversation = _json([*items, *ITEMS.validate_python(output)])
        made = {item["id"]: json.dumps(item).encode() for item in output}
        self._kept[name] = Kept(conversation, made)
        self._held += self._kept[name].size
        while self._held > self.size or len(self._kept) > self.responses:
            self._held -= self._kept.pop(next(iter(self._kept))).size

    def _before(self, name: str | None) -> list[Item]:
        if name is None:
            return []
        if name not in self._kept:
            said = (
                f"previous_response_id names {name[:80]!r}, which this server never kept or has"
                " forgotten: send the whole conversation as input"
            )
            raise ApiError(
                400, said, param="previous_response_id", code="previous_response_not_found"
            )
        return ITEMS.validate_json(self._kept[name].conversation)

    def _resolved(self, items: Sequence[Item]) -> Iterator[Item]:
        used: set[str] = set()
        for at, item in enumerate(items):
            if not isinstance(item, ReferenceItem):
                yield item
                continue
            if item.id in used:
                said = f"input.{at} names {item.id[:80]!r} a second time: leave it out"
                raise ApiError(400, said, param="input", code="invalid_value")
            used.add(item.id)
            yield from ITEMS.validate_json(b"[" + self._item(at, item.id) + b"]")

    def _item(self, at: int, name: str) -> bytes:
        found = (kept.output[name] for kept in self._kept.values() if name in kept.output)
        item = next(found, None)
        if item is None:
            said = (
                f"input.{at} names {name[:80]!r}, which this server never kept or has forgotten:"
                " send the item itself, as clients do with store: false"
            )
            raise ApiError(404, said, param="input", code="item_not_found")
        return item


def _json(items: Sequence[Item]) -> bytes:
    return ITEMS.dump_json(list(items), exclude_unset=True)
