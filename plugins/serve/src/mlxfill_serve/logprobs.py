"""Log-probabilities in OpenAI's shapes."""

from __future__ import annotations

import math
import re
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mlxfill_serve.jobs import Token

LEAST = -9999.0
"""Stands for minus infinity, as OpenAI has it: JSON knows no infinity."""
PART = "\N{REPLACEMENT CHARACTER}"
"""What a part of a character is decoded to."""
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")
"""How vocabularies of SentencePiece write a byte."""


class TokenTexts:
    """Text and bytes of single tokens, as a reply has them.

    A tokenizer may write its first token in another way than the others, without a space.
    """

    def __init__(self, tokenizer: Any) -> None:  # noqa: ANN401 - mlx-lm's wrapper, untyped
        self._tokenizer = tokenizer

    def text(self, token: int, *, first: bool) -> str:
        """What a token adds to a text."""
        decode = self._tokenizer.decode
        if first:
            return str(decode([token]))
        ids, before = self._before
        return str(decode([*ids, token]))[len(before) :]

    def raw(self, token: int, *, first: bool) -> bytes:
        """The same as bytes, those of a part of a character included."""
        text = self.text(token, first=first)
        return self._named(token) if PART in text else text.encode()

    def key(self, token: int, *, first: bool) -> str:
        """The text, or OpenAI's form of bytes that are none."""
        text = self.text(token, first=first)
        return f"bytes:{str(self._named(token))[2:-1]}" if PART in text else text

    @cached_property
    def _before(self) -> tuple[list[int], str]:
        """Any token that may stand before another, and its text."""
        ids = self._tokenizer.encode("a", add_special_tokens=False)[-1:]
        return ids, str(self._tokenizer.decode(ids))

    def _named(self, token: int) -> bytes:
        """Bytes of a token by its name in the vocabulary."""
        name = self._tokenizer.convert_ids_to_tokens(token)
        if isinstance(name, bytes):
            return name
        byte = _BYTE.fullmatch(name)
        if byte:
            return bytes.fromhex(byte[1])
        signs = self._signs
        return b"".join(signs.get(sign, sign.encode()) for sign in name)

    @cached_property
    def _signs(self) -> dict[str, bytes]:
        """The sign that byte-level vocabularies (GPT-2's) have for each byte."""
        from transformers.convert_slow_tokenizer import bytes_to_unicode

        return {sign: bytes([byte]) for byte, sign in bytes_to_unicode().items()}


def chat_logprobs(
    texts: TokenTexts, tokens: Iterable[Token], first: Token | None
) -> dict[str, Any]:
    """``logprobs`` of a chat choice; ``first``: the reply's first token."""
    content = []
    for token in tokens:
        if token.id is not None:
            at_first = token is first
            tops = [_entry(texts, i, p, first=at_first) for i, p in token.tops or ()]
            told = _entry(texts, token.id, token.logprob, first=at_first)
            content.append({**told, "top_logprobs": tops})
    return {"content": content, "refusal": None}


def _entry(texts: TokenTexts, token: int, logprob: float | None, *, first: bool) -> dict[str, Any]:
    text, raw = texts.text(token, first=first), texts.raw(token, first=first)
    return {"token": text, "logprob": _finite(logprob), "bytes": list(raw)}


class TextLogprobs:
    """``logprobs`` of a text choice, which grow by a token at a time.

    A table of candidates has their texts as its keys: parts of characters, and texts that two
    tokens have, get others.
    """

    def __init__(self, tokenizer: Any, offset: int) -> None:  # noqa: ANN401
        """``offset``: characters before the first token of the reply."""
        self._tokenizer = tokenizer
        self._part = _Part(tokenizer, offset)
        self.whole = _table()

    def add(self, token: Token) -> dict[str, list[Any]]:
        """The same of the next token of the reply alone."""
        return self._noted(self._part.told(token))

    def add_prompt(self, tokens: Sequence[Token], echoed: str) -> dict[str, list[Any]]:
        """The same of the tokens of the prompt, which comes first; the first of them has none."""
        part, told = _Part(self._tokenizer, 0), _table()
        for at, token in enumerate(tokens):
            entry = part.told(token)
            if not at:
                entry["token_logprobs"] = entry["top_logprobs"] = [None]
                if self._is_beginning(token, echoed):
                    part = _Part(self._tokenizer, 0)
            for key, values in entry.items():
                told[key] += values
        return self._noted(told)

    def _is_beginning(self, token: Token, echoed: str) -> bool:
        """Whether a tokenizer has put its own token before a text that was sent without it."""
        tokenizer = self._tokenizer
        return token.id == tokenizer.bos_token_id and not echoed.startswith(tokenizer.bos_token)

    def _noted(self, told: dict[str, list[Any]]) -> dict[str, list[Any]]:
        for key, values in told.items():
            self.whole[key] += values
        return told


class _Part:
    """Prompt or reply: a text that is decoded on its own."""

    def __init__(self, tokenizer: Any, offset: int) -> None:  # noqa: ANN401
        """``offset``: characters before it."""
        self._texts, self._stream = TokenTexts(tokenizer), tokenizer.detokenizer
        self._offset = self._last = offset
        self._first = True

    def told(self, token: Token) -> dict[str, list[Any]]:
        """What is said of its next token."""
        if token.id is None:
            return _table()
        tops: dict[str, float] = {}
        for each, logprob in token.tops or ():
            key = self._texts.key(each, first=self._first)
            tops[f"token_id:{each}" if key in tops else key] = _finite(logprob)
        # Bytes may make a text shorter until they are a character.
        self._last = max(self._last, self._offset + len(self._stream.pending))
        told: dict[str, list[Any]] = {
            "tokens": [self._texts.key(token.id, first=self._first)],
            "token_logprobs": [_finite(token.logprob)],
            "top_logprobs": [tops],
            "text_offset": [self._last],
        }
        self._stream.add_token(token.id)
        self._offset += len(self._stream.last_segment)
        self._first = False
        return told


def _table() -> dict[str, list[Any]]:
    return {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}


def _finite(logprob: float | None) -> float:
    return logprob if logprob is not None and math.isfinite(logprob) else LEAST
