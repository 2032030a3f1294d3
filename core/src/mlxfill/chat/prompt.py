"""From what the caller gave to prompt ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from attrs import frozen

from mlxfill.chat.contents import first_missing
from mlxfill.chat.roles import written
from mlxfill.chat.shortest import check_count, check_length
from mlxfill.chat.thoughts import with_thoughts_told
from mlxfill.errors import InputError, TemplateError
from mlxfill.rules import is_whole
from mlxfill.tool_calls.history import with_calls_told
from mlxfill.tool_calls.messages import for_template
from mlxfill.tool_calls.probe import CallProbe
from mlxfill.tool_calls.rendering import render, renderer
from mlxfill.tool_calls.tools import check_tools

if TYPE_CHECKING:
    from mlx_lm.tokenizer_utils import TokenizerWrapper

    from mlxfill.chat.markers import ContentMarkers

BYTES = (bytes, bytearray, memoryview)
"""Sequences of numbers, but none of ids."""


@frozen
class Prompt:
    """Prompt ids, their text where known, and the messages that they were made from."""

    ids: tuple[int, ...]
    text: str
    messages: tuple[Mapping[str, Any], ...] | None = None


def make_prompt(  # noqa: PLR0913, PLR0917 - all that a prompt is made from
    tokenizer: TokenizerWrapper,
    given: Any,  # noqa: ANN401
    tools: Sequence[Mapping[str, Any]] | None,
    options: Mapping[str, Any],
    markers: ContentMarkers | None = None,
    context: int | None = None,
) -> Prompt:
    """A string or ids as they are, chat messages through the template; a ``Prompt`` is ready.

    :param markers: reads markers in contents as text; None: they are what the template's are.
    :param context: tokens that the model has room for; a prompt that must be longer is not split.
    :raises InputError: nothing usable was given, a message or tool is of another form than
        OpenAI's format allows, or without the content that the template wants, or in a role
        that it does not know.
    :raises TemplateError: the template is missing or refuses the messages.
    """
    check_tools(tools)
    if isinstance(given, Prompt):
        return given
    if isinstance(given, str):
        require_text(given)
        check_length(tokenizer, given, context)
        return Prompt(tuple(encode(tokenizer, given)), given)
    if hasattr(given, "tolist") and not isinstance(given, memoryview):
        given = given.tolist()
    if isinstance(given, Mapping):
        given = [given]
    if not isinstance(given, Sequence) or isinstance(given, BYTES):
        message = f"a prompt is a string, ids or messages, not {type(given).__name__}"
        raise InputError(message)
    items = list(given)
    if items and all(isinstance(i, Mapping) for i in items):
        check_count(len(items), context)
        return _from_messages(tokenizer, items, tools, options, markers, context)
    wrong = [i for i in items if not is_whole(i)]
    if wrong:
        message = f"a prompt list holds token ids or messages, not {wrong[0]!r}"
        raise InputError(message)
    return Prompt(tuple(items), "")


def _from_messages(  # noqa: PLR0913, PLR0917 - all that a prompt is made from
    tokenizer: TokenizerWrapper,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]] | None,
    options: Mapping[str, Any],
    markers: ContentMarkers | None,
    context: int | None,
) -> Prompt:
    template = template_source(tokenizer, tools, options)

    def write(some: Sequence[Mapping[str, Any]]) -> str:
        return render(tokenizer, some, tools, options)

    probe = CallProbe(renderer(tokenizer), tokenizer, tools, options)
    told = with_thoughts_told(with_calls_told(for_template(messages), probe), probe)
    try:
        told, text = written(told, template, write)
    except TemplateError as error:
        at = first_missing(told, lambda some: written(some, template, write))
        if at is None:
            raise
        raise InputError(
            f"message {at} has no content, without which the chat template does not take it:"
            " give its text, or null for none"
        ) from error
    require_text(text)
    check_length(tokenizer, text, context)
    if markers is None:
        ids = tokenizer.encode(text, add_special_tokens=False)
    else:
        said = (list(told), list(tools or ()), options)
        ids = markers.encode(text, said, template, partial(render, tokenizer))
    return Prompt(tuple(ids), text, tuple(told))


def require_text(text: str) -> None:
    """Raise ``InputError`` for half a surrogate pair: how Python reads bytes that are no UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        around = ascii(text[max(error.start - 10, 0) : error.end + 10])
        message = f"the prompt is not UTF-8 (at character {error.start}, in {around})"
        raise InputError(message) from error


def encode(tokenizer: TokenizerWrapper, text: str) -> list[int]:
    """Ids of a raw prompt, with a BOS unless the text begins with it (mlx-lm's rule)."""
    bos = tokenizer.bos_token
    return list(tokenizer.encode(text, add_special_tokens=bos is None or not text.startswith(bos)))


def template_sources(tokenizer: TokenizerWrapper) -> list[str]:
    """The chat templates, several where some are for tools; none where code is in their place."""
    if getattr(tokenizer, "_chat_template", None) is not None:  # mlx-lm's own code for the model
        return []
    held = getattr(tokenizer, "chat_template", None)
    named = held.values() if isinstance(held, Mapping) else [held]
    return [source for source in named if isinstance(source, str)]


def template_source(
    tokenizer: TokenizerWrapper,
    tools: Sequence[Mapping[str, Any]] | None,
    options: Mapping[str, Any],
) -> str:
    """The one chat template that a prompt with these tools goes through; "" where there is none."""
    if not template_sources(tokenizer):
        return ""
    asked = options.get("chat_template")
    try:
        return str(
            tokenizer.get_chat_template(asked if isinstance(asked, str) else None, tools or None)
        )
    except ValueError:  # rendering will say that none is for use without tools
        return ""


def check_prompt(ids: Sequence[int], vocab_size: int, context: int | None) -> None:
    """Raise ``InputError`` for an empty prompt, ids beyond the vocabulary or too many of them."""
    if not ids:
        message = "the prompt is empty: at least one token is needed"
        raise InputError(message)
    low, high = min(ids), max(ids)
    if low < 0 or high >= vocab_size:
        message = (
            f"prompt id {low if low < 0 else high} is outside the vocabulary 0 to {vocab_size - 1}"
        )
        raise InputError(message)
    if context is not None and len(ids) > context:
        message = f"the prompt has {len(ids)} tokens; the model's context is {context}"
        raise InputError(message)
