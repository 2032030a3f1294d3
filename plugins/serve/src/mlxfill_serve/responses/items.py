"""The items of a response while they are written, and the events that tell of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar
from uuid import uuid4

if TYPE_CHECKING:
    from collections.abc import Iterator

Event = dict[str, Any]
"""An event without its number."""


class WrittenItem:
    """An item while it is written; ``at`` is its place in the output."""

    prefix: ClassVar[str]
    word: ClassVar[str]
    """The middle of the names of the events that bring its text."""

    def __init__(self, at: int, told: dict[str, Any]) -> None:
        self.at = at
        self.item = {"id": f"{self.prefix}_{uuid4().hex}", **told, "status": "in_progress"}
        self._pieces: list[str] = []

    @property
    def text(self) -> str:
        """What was written so far."""
        return "".join(self._pieces)

    def begin(self) -> Iterator[Event]:
        """The event that tells of the item."""
        yield self._event("response.output_item.added", item=dict(self.item))

    def add(self, text: str) -> Event:
        """The event that brings a piece of the text."""
        self._pieces.append(text)
        return self._inner(f"response.{self.word}.delta", delta=text)

    def end(self, status: str) -> Iterator[Event]:
        """The event that tells the whole item."""
        self.item["status"] = status
        yield self._event("response.output_item.done", item=self.item)

    def _event(self, kind: str, **told: Any) -> Event:  # noqa: ANN401 - JSON
        return {"type": kind, "output_index": self.at, **told}

    def _inner(self, kind: str, **told: Any) -> Event:  # noqa: ANN401 - JSON
        return self._event(kind, item_id=self.item["id"], **told)


class WrittenText(WrittenItem):
    """An item whose content is one text."""

    part: ClassVar[dict[str, Any]]
    """What its content holds beside the text."""

    def begin(self) -> Iterator[Event]:
        """The events that tell of the item and of its content."""
        yield from super().begin()
        yield self._inner("response.content_part.added", part={**self.part, **self._said()})

    def end(self, status: str) -> Iterator[Event]:
        """The events that tell the whole text, content and item."""
        whole = {**self.part, **self._said()}
        yield self._inner(f"response.{self.word}.done", **self._said())
        yield self._inner("response.content_part.done", part=whole)
        self.item["content"] = [whole]
        yield from super().end(status)

    def _said(self) -> dict[str, Any]:
        return {"text": self.text}

    def _inner(self, kind: str, **told: Any) -> Event:  # noqa: ANN401 - JSON
        return super()._inner(kind, content_index=0, **told)


class WrittenMessage(WrittenText):
    """What the model says.  ``logprobs``: of its tokens, where they are wanted."""

    prefix, word = "msg", "output_text"
    part: ClassVar[dict[str, Any]] = {"type": "output_text", "annotations": []}

    def __init__(self, at: int) -> None:
        super().__init__(at, {"type": "message", "role": "assistant", "content": []})
        self.logprobs: list[Any] = []

    def say(self, text: str, logprobs: list[Any]) -> Event:
        """The event that brings a piece of the text."""
        self.logprobs += logprobs
        return {**self.add(text), "logprobs": logprobs}

    def _said(self) -> dict[str, Any]:
        return {**super()._said(), "logprobs": list(self.logprobs)}


class WrittenReasoning(WrittenText):
    """What the model thinks: all of it, not a summary."""

    prefix, word = "rs", "reasoning_text"
    part: ClassVar[dict[str, Any]] = {"type": "reasoning_text"}

    def __init__(self, at: int) -> None:
        super().__init__(at, {"type": "reasoning", "summary": [], "content": []})


class WrittenCall(WrittenItem):
    """A call of a function; its text is that of the arguments."""

    prefix, word = "fc", "function_call_arguments"

    def __init__(self, at: int, call_id: str, name: str) -> None:
        told = {"type": "function_call", "call_id": call_id, "name": name, "arguments": ""}
        super().__init__(at, told)

    def end(self, status: str) -> Iterator[Event]:
        """The events that tell all arguments and the whole item."""
        self.item["arguments"] = self.text
        told = {"arguments": self.text, "name": self.item["name"]}
        yield self._inner(f"response.{self.word}.done", **told)
        yield from super().end(status)
