"""The chat template as an oracle: what it writes for a reply, and the token ids of that."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from attrs import field, frozen

from mlxfill import TemplateError

if TYPE_CHECKING:
    from mlxfill_fill_strict.spans import Ids

Message: TypeAlias = Mapping[str, Any]
Tools: TypeAlias = Sequence[Mapping[str, Any]]

_USER: Message = {"role": "user", "content": "Go on."}
_TAIL = 80
"""Characters of the prompt that are tokenized before a reply, where that is proven to be enough."""
_NOT_OURS = ("add_generation_prompt", "continue_final_message")


def _ours(options: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in options.items() if key not in _NOT_OURS}


@frozen
class Conversation:
    """One short conversation; ``prompt`` is its rendering up to the reply.

    ``tools`` None leaves the tools out of the prompt: quicker, where replies stay the same.
    """

    render: Callable[..., str]
    tools: Tools | None
    options: Mapping[str, Any] = field(converter=_ours)
    prompt: str

    @classmethod
    def begin(
        cls, render: Callable[..., str], tools: Tools | None, options: Mapping[str, Any]
    ) -> Conversation:
        """:raises TemplateError: the template refuses the user's turn."""
        prompt = render([_USER], tools, **_ours(options), add_generation_prompt=True)
        return cls(render, tools, options, prompt)

    def reply(self, message: Message) -> str | None:
        """The text of an assistant's turn, after the prompt.

        :returns: None when the template refuses the turn, or when the rendered conversation does
            not begin with the prompt.
        """
        try:
            full = self._until(_USER, message)
        except TemplateError:
            return None
        return full.removeprefix(self.prompt) if full.startswith(self.prompt) else None

    def opening(self) -> str:
        """The part of the prompt that opens the reply; all of it when it cannot be told."""
        return self.prompt.removeprefix(self._until(_USER))

    def _until(self, *messages: Message) -> str:
        return self.render([*messages], self.tools, **self.options, add_generation_prompt=False)


class Tokenization:
    """Token ids of replies, as they follow a prompt."""

    def __init__(self, tokenizer: Any, prompt: str) -> None:  # noqa: ANN401 - mlx-lm's wrapper
        self.tokenizer = tokenizer
        self._prompt = self._head = prompt
        self._head_ids = self._encode(prompt)

    def ids(self, reply: str) -> Ids:
        """Ids of a reply.

        Where the prompt's last token would swallow the reply's first characters, a model that is
        given the prompt's ids cannot write that token: the reply is tokenized alone.
        """
        whole, size = self._encode(self._head + reply), len(self._head_ids)
        return whole[size:] if whole[:size] == self._head_ids else self._alone(reply)

    def shorten(self, replies: Sequence[str]) -> None:
        """Tokenize less of the prompt from now on, if that leaves ``replies`` as they are."""
        long = self._head, self._head_ids
        expected = [self.ids(reply) for reply in replies]
        self._head = self._prompt[-_TAIL:]
        self._head_ids = self._encode(self._head)
        if [self.ids(reply) for reply in replies] != expected:
            self._head, self._head_ids = long

    def _alone(self, reply: str) -> Ids:
        ids, bos = self._encode(reply), self.tokenizer.bos_token
        prepended = bos and ids[:1] == (self.tokenizer.bos_token_id,) and not reply.startswith(bos)
        return ids[1:] if prepended else ids

    def _encode(self, text: str) -> Ids:
        return tuple(self.tokenizer.encode(text, add_special_tokens=False))
