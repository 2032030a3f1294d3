"""Requests as an engine makes them, for sources that are tested without one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mlxfill import Limits, Request, Sampling, TemplateError
from mlxfill_testing.tokenizer import tiny_tokenizer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def tiny_request(prompt: str | Sequence[int], *, tokenizer: Any = None, **fields: Any) -> Request:  # noqa: ANN401
    """A request for a prompt, given as text or ids.

    :param tokenizer: an mlx-lm tokenizer wrapper, ``tiny_tokenizer()`` unless given.
    :param fields: further fields of ``Request``: ``messages``, ``tools``, ``delimiters``, ...
    """
    tokenizer = tiny_tokenizer() if tokenizer is None else tokenizer

    def render(
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        **options: Any,  # noqa: ANN401
    ) -> str:
        settings = {"add_generation_prompt": True, "tokenize": False, **options}
        try:
            text = tokenizer.apply_chat_template(
                list(messages), tools=list(tools) if tools else None, **settings
            )
        except Exception as error:
            raise TemplateError(f"the chat template refused the messages: {error}") from error
        return str(text)

    is_text = isinstance(prompt, str)
    ids = tokenizer.encode(prompt, add_special_tokens=False) if is_text else prompt
    made: dict[str, Any] = {
        "prompt_ids": tuple(ids),
        "prompt_text": prompt if is_text else tokenizer.decode(list(ids)),
        "messages": None,
        "tools": None,
        "sampling": Sampling(seed=1),
        "limits": Limits(512, 4096),
        "tokenizer": tokenizer,
        "render": render,
        "eos_ids": frozenset(tokenizer.eos_token_ids),
    }
    return Request(**{**made, **fields})
