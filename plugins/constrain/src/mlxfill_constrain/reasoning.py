"""Replies that begin inside a reasoning block, because the template opened one."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mlxfill import Request

_TAIL = 16
"""Tokens at a prompt's end that show whether it opens a block."""


def opened_block(request: Request) -> tuple[int, ...]:
    """The ids that end the reasoning block that the prompt opens at its end; empty for none.

    A marker further up is somebody's text: a question about it frees no reply from its schema.
    """
    tokenizer = request.tokenizer
    if not getattr(tokenizer, "has_thinking", False):
        return ()
    end = str(tokenizer.decode(list(request.prompt_ids[-_TAIL:]))).rstrip()
    return tuple(tokenizer.think_end_tokens) if end.endswith(tokenizer.think_start) else ()
