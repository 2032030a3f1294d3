"""Log-probabilities in OpenAI's shapes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mlxfill_serve.jobs import Token

LEAST = -9999.0
"""Stands for minus infinity, as OpenAI has it: JSON knows no infinity."""


def chat_logprobs(tokenizer: Any, tokens: Iterable[Token]) -> dict[str, Any]:  # noqa: ANN401
    """``logprobs`` of a chat choice."""
    content = [
        {
            **_entry(tokenizer, token.id, token.logprob),
            "top_logprobs": [_entry(tokenizer, i, p) for i, p in token.tops or ()],
        }
        for token in tokens
        if token.id is not None
    ]
    return {"content": content, "refusal": None}


def text_logprobs(
    tokenizer: Any,  # noqa: ANN401
    tokens: Sequence[Token],
    offset: int,
) -> dict[str, Any]:
    """``logprobs`` of a text choice whose first token stands at ``offset`` characters."""
    offsets = []
    for token in tokens:
        offsets.append(offset)
        offset += len(token.text)
    return {
        "tokens": [_text(tokenizer, token.id) for token in tokens if token.id is not None],
        "token_logprobs": [_finite(token.logprob) for token in tokens if token.id is not None],
        "top_logprobs": [
            {_text(tokenizer, i): _finite(p) for i, p in token.tops or ()}
            for token in tokens
            if token.id is not None
        ],
        "text_offset": [
            o for o, token in zip(offsets, tokens, strict=True) if token.id is not None
        ],
    }


def _entry(tokenizer: Any, token: int, logprob: float | None) -> dict[str, Any]:  # noqa: ANN401
    text = _text(tokenizer, token)
    # A token that is a part of a character has bytes that its text does not show.
    known = None if "\N{REPLACEMENT CHARACTER}" in text else list(text.encode())
    return {"token": text, "logprob": _finite(logprob), "bytes": known}


def _text(tokenizer: Any, token: int) -> str:  # noqa: ANN401
    return str(tokenizer.decode([token]))


def _finite(logprob: float | None) -> float:
    return logprob if logprob is not None and math.isfinite(logprob) else LEAST
