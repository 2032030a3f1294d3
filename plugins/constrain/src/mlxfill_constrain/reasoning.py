"""Replies that begin inside a reasoning block, because the template opened one."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mlxfill import Request


def opened_block(request: Request) -> tuple[int, ...]:
    """The ids that end the reasoning block in which the prompt ends; empty when in none."""
    tokenizer = request.tokenizer
    if not getattr(tokenizer, "has_thinking", False):
        return ()
    prompt = request.prompt_ids
    opened = tokenizer.rfind_think_start(prompt)
    if opened < 0 or tokenizer.rfind_think_end(prompt, start=opened) > opened:
        return ()
    return tuple(tokenizer.think_end_tokens)
