"""The text of chat messages, as a model's own template writes them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from mlxfill.errors import TemplateError, reason
from mlxfill.tool_calls.messages import arguments_of, with_short_ids
from mlxfill.tool_calls.tools import with_all_keys

if TYPE_CHECKING:
    from mlx_lm.tokenizer_utils import TokenizerWrapper


def render(
    tokenizer: TokenizerWrapper,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]] | None,
    options: Mapping[str, Any],
) -> str:
    """Text of chat messages by the model's own template, ready for the reply.

    transformers renders it in jinja2's immutable sandbox: a template sees the messages
    and nothing of this process.  What OpenAI's format lets out or leaves open, and a template
    refuses, is put as all of them take it: descriptions of tools, ids of calls.
    """
    if not tokenizer.has_chat_template:
        message = "this model has no chat template: give a plain prompt (--raw) instead of messages"
        raise TemplateError(message)
    settings = {"add_generation_prompt": True, **options, "tokenize": False}
    try:
        return _rendered(tokenizer, messages, tools, settings)
    except Exception as error:
        with suppress(Exception):
            filled = with_all_keys(tools or ())
            return _rendered(tokenizer, with_short_ids(messages), filled, settings)
        said = f"{reason(error)}{_unreadable(messages)}"
        if isinstance(error, RecursionError):
            said = "they or the tools are nested too deeply (flatten them), or it calls itself"
        raise TemplateError(f"the chat template refused the messages: {said}") from error


def _rendered(
    tokenizer: TokenizerWrapper,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]] | None,
    settings: Mapping[str, Any],
) -> str:
    given = list(tools) if tools else None
    return str(tokenizer.apply_chat_template(list(messages), tools=given, **settings))


def renderer(tokenizer: TokenizerWrapper) -> Callable[..., str]:
    """``Request.render`` of a model.  Whoever keeps it keeps the tokenizer and nothing else."""

    def render_messages(
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        **options: object,
    ) -> str:
        return render(tokenizer, messages, tools, options)

    return render_messages


def _unreadable(messages: Sequence[Mapping[str, Any]]) -> str:
    """``"; ..."`` that names the first call whose arguments are no JSON object, or nothing."""
    for at, message in enumerate(messages):
        for call in message.get("tool_calls") or ():
            arguments = arguments_of(call)
            if isinstance(arguments, str) and not _is_object(arguments):
                name = call["function"].get("name")
                return f"; the arguments of the call of {name!r} in message {at} are no JSON object"
    return ""


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False
