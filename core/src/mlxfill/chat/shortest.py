"""The fewest tokens that a text can have, known before it is split: a long one takes seconds."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from mlxfill.errors import InputError

if TYPE_CHECKING:
    from mlx_lm.tokenizer_utils import TokenizerWrapper
    from tokenizers import Tokenizer

DROPPING = ("Removed", "Whitespace")
"""Steps before the split that leave out parts of a text."""

SLACK = 256
"""Tokens by which a beginning of a text may have more than the text."""


def check_count(messages: int, context: int | None) -> None:
    """Raise ``InputError`` for more messages than there are tokens in the context."""
    if context is not None and messages > context:
        said = f"the prompt has {messages} messages; the model's context is {context} tokens"
        raise InputError(said)


def check_length(tokenizer: TokenizerWrapper, text: str, context: int | None) -> None:
    """Raise ``InputError`` for a text that must have more tokens than the context."""
    if context is None or len(text) <= context:
        return
    backend: Any = getattr(tokenizer, "backend_tokenizer", None)
    longest = _longest(backend)
    if not longest:
        fewest = _of_beginning(tokenizer, text, context)
    else:
        if backend.normalizer is not None:
            text = backend.normalizer.normalize_str(text)
        fewest = len(text.encode()) // longest
    if fewest > context:
        said = f"the prompt has at least {fewest} tokens; the model's context is {context}"
        raise InputError(said)


def _of_beginning(tokenizer: TokenizerWrapper, text: str, context: int) -> int:
    """Tokens of a beginning that is too long already, 0 where the whole text has to be split.

    A beginning is split as in the whole text but for its end, for which ``SLACK`` is taken off.
    """
    size = 2 * context
    while 2 * size <= len(text):
        count = len(tokenizer.encode(text[:size], add_special_tokens=False)) - SLACK
        if count > context:
            return count
        size *= 2
    return 0


@lru_cache(maxsize=4)
def _longest(backend: Tokenizer) -> int:
    """Most bytes of a text that one token stands for; 0 where that is not known."""
    if not hasattr(backend, "pre_tokenizer"):
        return 0
    steps, normal = repr(backend.pre_tokenizer), repr(backend.normalizer)
    if "ByteLevel" not in steps or any(word in steps for word in DROPPING):
        return 0
    if normal not in {"None", "NFC()"} or getattr(backend.model, "unk_token", None) is not None:
        return 0
    added = backend.get_added_tokens_decoder().values()
    if any(token.lstrip or token.rstrip for token in added):
        return 0
    letters = max(map(len, backend.get_vocab(with_added_tokens=False)))  # each stands for a byte
    return max([letters, *(len(token.content.encode()) for token in added)])
