"""A chat template is asked what it writes, in a conversation of one question and one reply."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

from attrs import field, frozen

from mlxfill.errors import TemplateError
from mlxfill.tool_calls.ways import EXAMPLE, CallWay, holds_example, ways_to_call

if TYPE_CHECKING:
    from mlx_lm.tokenizer_utils import TokenizerWrapper

Message: TypeAlias = Mapping[str, Any]
Tools: TypeAlias = Sequence[Mapping[str, Any]]
Answer = TypeVar("Answer")

MOST_KEPT = 32
"""Answers that are remembered for each tokenizer: tools and options are a client's."""
QUESTION: Message = {"role": "user", "content": "Go on."}
_kept: WeakKeyDictionary[Any, dict[str, tuple[Any]]] = WeakKeyDictionary()
_NOT_OURS = ("add_generation_prompt", "continue_final_message")


def _ours(options: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in options.items() if key not in _NOT_OURS}


@frozen(eq=False)
class CallProbe:
    """A conversation of one question and one reply, which shows how a chat template writes replies.

    The prompt is rendered once, each reply anew.

    ``render``: as ``Request.render``.
    ``tokenizer``: mlx-lm's wrapper.
    ``tools``: those of the prompt; None leaves them out.
    ``options``: variables of the chat template.
    """

    render: Callable[..., str]
    tokenizer: TokenizerWrapper
    tools: Tools | None
    options: Mapping[str, Any] = field(converter=_ours)

    @cached_property
    def prompt(self) -> str:
        """The text up to the reply.  Raises ``TemplateError`` where the template refuses it."""
        return self.render([QUESTION], self.tools, **self.options, add_generation_prompt=True)

    @cached_property
    def opening(self) -> str:
        """The part of the prompt that opens the reply; all of it when it cannot be told."""
        return self.prompt.removeprefix(self._question)

    def reply(self, message: Message) -> str | None:
        """The text of an assistant's turn, after the prompt.

        :returns: None when the template refuses the turn, or when the rendered conversation does
            not begin with the prompt.
        """
        prompt, whole = self.prompt, self._with(message)
        return whole.removeprefix(prompt) if whole and whole.startswith(prompt) else None

    def turn(self, message: Message) -> str | None:
        """The text of an assistant's turn with all that opens it; None when it is refused."""
        whole = self._with(message)
        return None if whole is None else whole[len(shared_start(self._question, whole)) :]

    def calls_in(self, reply: str | None) -> str:
        """A rendered reply from its first call's marker to its last call's end; "" for none."""
        start, end = self.tokenizer.tool_call_start, self.tokenizer.tool_call_end
        first, last = (reply.find(start), reply.rfind(end)) if reply and start else (-1, -1)
        if not reply or first < 0 or last < first:
            return ""
        if end:
            return reply[first : last + len(end)]
        return reply[first:].rstrip().removesuffix(self.tokenizer.eos_token or "")

    def accepted_ways(self) -> tuple[CallWay, ...]:
        """The first way to put a call into a message that is written as a reply.

        Arguments as a mapping and as text are two ways where the template writes them unlike.
        """
        for pair in ways_to_call():
            replies = [(way, self.reply(way.message([EXAMPLE]))) for way in pair]
            fit = [(way, text) for way, text in replies if holds_example(text)]
            if fit:
                ways = tuple(way for way, _ in fit)
                return ways[:1] if len({text for _, text in fit}) == 1 else ways
        return ()

    def once(self, ask: Callable[[CallProbe], Answer]) -> Answer:
        """``ask(self)``, called once for each tokenizer, template, tools and options."""
        kept = _kept.setdefault(self.tokenizer, {})
        template = getattr(self.tokenizer, "chat_template", None)
        try:
            key = repr((ask, template, self.tools, self.options))
        except RecursionError:  # tools that no template can write either
            return ask(self)
        found = kept.get(key)
        if found is None:
            found = (ask(self),)
            if len(kept) >= MOST_KEPT:
                kept.clear()
            kept[key] = found
        answer: Answer = found[0]
        return answer

    def written(self, messages: Sequence[Message]) -> str:
        """The text of messages that nothing follows.  Raises ``TemplateError``."""
        options = {**self.options, "add_generation_prompt": False}
        return self.render(messages, self.tools, **options)

    @cached_property
    def _question(self) -> str:
        return self.written([QUESTION])

    def _with(self, message: Message) -> str | None:
        try:
            return self.written([QUESTION, message])
        except TemplateError:
            return None


def shared_start(*texts: str) -> str:
    """What all of them begin with."""
    first, last = min(texts), max(texts)  # whatever stands between these begins so, too
    size = next((at for at, c in enumerate(first) if last[at : at + 1] != c), len(first))
    return first[:size]
