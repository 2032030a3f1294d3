"""From the text that a model writes to the parts of a reply: reasoning, content, tool calls."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

from attrs import define

from mlxfill.tool_calls import ReplySections, read_calls
from mlxfill_serve.callstream import CallStream

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

REASONING, TOOL = "reasoning", "tool"  # as ``ReplySections`` names them

ID_LENGTH = 9
"""Letters and digits of a call's id: the templates of Mistral's models take no other back, those of
others any."""


class Content(NamedTuple):
    """Text for the user."""

    text: str


class Reasoning(NamedTuple):
    """What the model thinks before it answers."""

    text: str


class CallBegun(NamedTuple):
    """The next tool call; ``call`` counts from 0."""

    call: int
    id: str
    name: str


class CallArguments(NamedTuple):
    """A further piece of the JSON text of a call's arguments."""

    call: int
    text: str


class CallBroken(NamedTuple):
    """What was begun as a call turned out to be none: all of its text follows as content."""

    call: int


Part = Content | Reasoning | CallBegun | CallArguments | CallBroken


class ReplyReader:
    """Takes text as it comes and gives the parts of the reply as early as they are certain.

    Markers are mlx-lm's for the model.  A call of an offered tool in JSON is passed on while it is
    written, any other at its end.  What are calls is ``read_calls`` to say, as in
    ``Result.tool_calls``; one that was passed on and is none after all is told to be broken.  What
    is no call is content.
    """

    def __init__(
        self,
        tokenizer: Any,  # noqa: ANN401 - mlx-lm's wrapper, untyped
        tools: Sequence[Mapping[str, Any]] | None,
        prompt_text: str,
        *,
        most: int | None = None,
    ) -> None:
        """``prompt_text`` shows whether the template has opened a block of reasoning.

        :param tools: those of the request, the only ones that can be called.
        :param most: calls that are passed on; None: all.
        """
        self._tokenizer, self._tools = tokenizer, list(tools or ())
        self._offered = frozenset(tool["function"]["name"] for tool in self._tools)
        self._sections = ReplySections(tokenizer, prompt_text, tools=bool(tools))
        self._call: CallStream | None = None
        self._body = ""
        self._begun: list[_Streamed] = []
        self._made = self._whole = 0
        self._most = most
        self._ids: set[str] = set()
        self._spoken = False
        self._blank = ""
        self._after_reasoning = self.reasoning

    @property
    def called(self) -> bool:
        """Whether a tool was called; a broken call is none."""
        return self._whole > 0

    @property
    def reasoning(self) -> bool:
        """Whether the model is thinking."""
        return self._sections.now == REASONING

    def feed(self, text: str) -> list[Part]:
        """Read on."""
        return list(self._parts(self._sections.feed(text)))

    def end(self) -> list[Part]:
        """Nothing follows: give what was held back."""
        parts = [*self._parts([self._sections.end()]), *self._end_call(finished=False)]
        return parts if self._made or not self._blank else [*parts, Content(self._blank)]

    def _parts(self, sections: Iterable[tuple[str, str]]) -> Iterator[Part]:
        for section, text in sections:
            if section != TOOL:
                yield from self._end_call(finished=True)
            if section == TOOL:
                yield from self._in_call(text)
            elif section == REASONING:
                self._after_reasoning = True
                yield from [Reasoning(text)] if text else []
            else:
                yield from self._content(text)

    def _content(self, text: str) -> Iterator[Content]:
        """Content; space between the markup is none, so that before a word has to wait."""
        text, self._blank = self._blank + text, ""
        if not self._spoken:
            if self._after_reasoning or self._made:
                text = text.lstrip("\n")
            if not text.strip():
                self._blank = text
                return
        if text:
            self._spoken = True
            yield Content(text)

    def _in_call(self, text: str) -> Iterator[Part]:
        self._body += text
        if self._call is None:
            self._call = CallStream(self._offered)
        yield from self._streamed(self._call.feed(text))

    def _streamed(self, pieces: Iterable[tuple[str | None, str]]) -> Iterator[Part]:
        """What can be passed on of the calls in a text while they are written."""
        for name, arguments in pieces:
            if name is not None and self._is_full:
                self._call = CallStream(())  # no further one is told of
                return
            if name is not None:
                begun = self._begin(name)
                self._begun.append(_Streamed(begun.call, name))
                yield begun
            if arguments:
                self._begun[-1].arguments += arguments
                yield CallArguments(self._begun[-1].call, arguments)
        following = self._call.following() if self._call is not None else ""
        if following and not self._is_full:
            self._call = CallStream(self._offered)
            yield from self._streamed(self._call.feed(following))

    @property
    def _is_full(self) -> bool:
        """Whether no further call is passed on."""
        return self._whole + len(self._begun) == self._most

    def _begin(self, name: str, given: object = None) -> CallBegun:
        """:param given: the id that the model gave."""
        self._made += 1
        self._spoken, self._blank = False, ""
        is_own = isinstance(given, str) and given and given not in self._ids
        call_id = str(given) if is_own else uuid4().hex[:ID_LENGTH]
        self._ids.add(call_id)
        return CallBegun(self._made - 1, call_id, name)

    def _end_call(self, *, finished: bool) -> Iterator[Part]:
        if self._call is None:
            return
        body, begun = self._body, self._begun
        self._call, self._body, self._begun = None, "", []
        calls = read_calls(self._tokenizer, body, self._tools)
        if not calls or not all(map(_Streamed.is_that, begun, calls)):
            yield from (CallBroken(each.call) for each in begun)
            end = self._tokenizer.tool_call_end if finished else ""
            yield from self._content(f"{self._tokenizer.tool_call_start}{body}{end}")
            return
        room = len(calls) if self._most is None else self._most - self._whole
        for call in calls[len(begun) : max(room, 0)]:
            made = self._begin(call["name"], call.get("id"))
            yield made
            yield CallArguments(made.call, json.dumps(call["arguments"], ensure_ascii=False))
        self._whole += min(len(calls), max(room, 0))


@define
class _Streamed:
    """A call that is passed on while it is written."""

    call: int
    name: str
    arguments: str = ""

    def is_that(self, call: Mapping[str, Any]) -> bool:
        """Whether what was passed on is this call."""
        try:
            arguments = json.loads(self.arguments)
        except ValueError:
            return False
        return (self.name, arguments) == (call["name"], call["arguments"])
