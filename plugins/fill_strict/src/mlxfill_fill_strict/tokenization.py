"""Token ids of replies, as they follow a prompt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mlxfill_fill_strict.spans import Ids

_TAIL = 80
"""Characters of the prompt that are tokenized before a reply, where that is proven to be enough."""


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
