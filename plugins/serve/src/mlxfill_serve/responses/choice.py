"""A reply as the output of a response."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mlxfill_serve.logprobs import TokenTexts, chat_logprobs
from mlxfill_serve.reply import CallArguments, CallBegun, CallBroken, Content, Reasoning
from mlxfill_serve.responses.items import WrittenCall, WrittenMessage, WrittenReasoning

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mlxfill import Stats
    from mlxfill_serve.jobs import Ended, Token
    from mlxfill_serve.reply import Part, ReplyReader
    from mlxfill_serve.responses.items import Event, WrittenItem


class ResponseChoice:
    """The one reply of a response.  ``output``: the items that are over.

    ``is_broken``: a call that a stream has told of turned out to be none.
    """

    def __init__(
        self,
        reader: ReplyReader,
        tokenizer: Any,  # noqa: ANN401 - mlx-lm's wrapper, untyped
        *,
        with_logprobs: bool,
    ) -> None:
        self.reader, self.tokenizer, self.with_logprobs = reader, tokenizer, with_logprobs
        self.tokens: list[Token] = []
        self._texts = TokenTexts(tokenizer)
        self.output: list[dict[str, Any]] = []
        self.reasoning_tokens = 0
        self.stats: Stats | None = None
        self.finish_reason: str | None = None
        self.is_broken = False
        self._now: WrittenItem | None = None
        self._told_of = 0
        self._calls: dict[int, WrittenCall] = {}
        self._untold: list[Token] = []

    def feed(self, token: Token) -> Iterator[Event]:
        """The events that a token brings."""
        self.tokens.append(token)
        if self.reader.reasoning:
            self.reasoning_tokens += token.id is not None
        else:
            self._untold.append(token)
        for part in self.reader.feed(token.text):
            yield from self._told(part)

    def end(self, ended: Ended) -> Iterator[Event]:
        """The events that were held back, and those that end the last item."""
        for part in self.reader.end():
            yield from self._told(part)
        self.stats, self.finish_reason = ended.stats, ended.reason
        whole = ended.reason == "stop"
        if whole and self._now is None:  # clients take a reply without any item for none
            yield from self._begin(WrittenMessage(self._next()))
        yield from self._end("completed" if whole else "incomplete")

    def _told(self, part: Part) -> Iterator[Event]:
        match part:
            case Content(text):
                yield from self._said(text)
            case Reasoning(text):
                if not isinstance(self._now, WrittenReasoning):
                    yield from self._begin(WrittenReasoning(self._next()))
                yield from self._add(text)
            case CallBegun(call, call_id, name):
                self._calls[call] = WrittenCall(self._next(), call_id, name)
                yield from self._begin(self._calls[call])
            case CallArguments(_, text):
                yield from self._add(text)
            case CallBroken(call):
                yield from self._break(self._calls.pop(call))
        self._untold = []

    def _break(self, broken: WrittenItem) -> Iterator[Event]:
        """A call that was told is none: it is over, and no part of the reply."""
        self.is_broken = True
        if broken is self._now:
            yield from self._end("incomplete")
        self.output.remove(broken.item)

    def _said(self, text: str) -> Iterator[Event]:
        now = self._now
        if not isinstance(now, WrittenMessage):
            now = WrittenMessage(self._next())
            yield from self._begin(now)
        yield now.say(text, self._logprobs())

    def _add(self, text: str) -> Iterator[Event]:
        if self._now is not None:
            yield self._now.add(text)

    def _logprobs(self) -> list[Any]:
        """Those of the tokens since the last part, of which some were held back."""
        if not self.with_logprobs:
            return []
        first = next(iter(self.tokens), None)
        told: list[Any] = chat_logprobs(self._texts, self._untold, first)["content"]
        return told

    def _next(self) -> int:
        """The place of the next item."""
        self._told_of += 1
        return self._told_of - 1

    def _begin(self, item: WrittenItem) -> Iterator[Event]:
        yield from self._end("completed")
        self._now = item
        yield from item.begin()

    def _end(self, status: str) -> Iterator[Event]:
        item, self._now = self._now, None
        if item is not None:
            yield from item.end(status)
            self.output.append(item.item)
