"""From the text that a model writes to the parts of a reply: reasoning, content, tool calls."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

from mlxfill import ReplySections
from mlxfill_serve.callstream import CallStream, sendable

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


Part = Content | Reasoning | CallBegun | CallArguments


class ReplyReader:
    """Takes text as it comes and gives the parts of the reply as early as they are certain.

    Markers are mlx-lm's for the model.  A call whose text is JSON is passed on while it is
    written; any other is parsed at its end by mlx-lm's parser.  What turns out to be no call is
    content.
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

        :param tools: as mlx-lm's parsers want them, see ``with_types``.
        :param most: calls that are passed on; None: all.
        """
        self._tokenizer, self._tools = tokenizer, list(tools or ())
        self._sections = ReplySections(tokenizer, prompt_text, tools=bool(tools))
        self._call: CallStream | None = None
        self._made, self._most = 0, most
        self._ids: set[str] = set()
        self._spoken = False
        self._blank = ""
        self._after_reasoning = self.reasoning

    @property
    def called(self) -> bool:
        """Whether a tool was called."""
        return self._made > 0

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
        if self._made == self._most and self._call is None:
            return
        if self._call is None:
            self._call = CallStream()
        for name, arguments in self._call.feed(text):
            if name is not None:
                yield self._begin(name)
            if arguments:
                yield CallArguments(self._made - 1, arguments)
        following = self._call.following()
        if following:
            self._call = None
            yield from self._in_call(following)

    def _begin(self, name: str, given: object = None) -> CallBegun:
        """:param given: the id that the model gave."""
        self._made += 1
        self._spoken, self._blank = False, ""
        is_own = isinstance(given, str) and given and given not in self._ids
        call_id = str(given) if is_own else uuid4().hex[:ID_LENGTH]
        self._ids.add(call_id)
        return CallBegun(self._made - 1, call_id, name)

    def _end_call(self, *, finished: bool) -> Iterator[Part]:
        call, self._call = self._call, None
        if call is None or call.begun:
            return
        calls = self._parsed(call.text)
        room = None if self._most is None else self._most - self._made
        for name, arguments, given in calls[:room]:
            begun = self._begin(name, given)
            yield begun
            yield CallArguments(begun.call, arguments)
        if not calls:
            end = self._tokenizer.tool_call_end if finished else ""
            yield Content(f"{self._tokenizer.tool_call_start}{call.text}{end}")

    def _parsed(self, text: str) -> list[tuple[str, str, object]]:
        """Names, arguments and ids of the calls in a text, as OpenAI's clients want them."""
        try:
            found = self._tokenizer.tool_parser(text, self._tools)
            calls = found if isinstance(found, list) else [found]
            named = [call for call in calls if isinstance(call, dict) and call.get("name")]
            return [
                (sendable(str(c["name"])), as_json(c.get("arguments") or {}), c.get("id"))
                for c in named
            ]
        except Exception:  # noqa: BLE001 - a parser raises what it likes for text that is no call
            return []


def as_json(arguments: object) -> str:
    """Arguments as JSON text.

    :raises TypeError, ValueError: they are none, as a set that mlx-lm read from a Python literal,
        or text that breaks off.
    """
    if isinstance(arguments, str):
        json.loads(arguments)
        return sendable(arguments)
    return sendable(json.dumps(arguments, ensure_ascii=False))
