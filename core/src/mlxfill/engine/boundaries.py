"""Where in a prompt a later one may part from it: the places worth keeping caches of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mlxfill.engine.prompt_store import common
from mlxfill.errors import TemplateError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mlxfill.contracts import Request

LEAST = 64
"""A shorter beginning is processed as quickly as it is found."""
_OTHER_TEXTS = ("A", "9", "é")


def boundaries(request: Request) -> list[int]:
    """Numbers of prompt tokens, ascending, all below the prompt's length.

    For chat messages: the beginning that any conversation with this system message and these
    tools has, and the end of the last message, before the template opens the reply (what it puts
    there may look different once the reply stands in the conversation).  For other prompts: all
    but the last token.
    """
    if request.messages is None:
        found = {len(request.prompt_ids) - 1}
    else:
        found = {_shared_start(request), _end_of_messages(request)}
    return sorted(at for at in found if LEAST <= at < len(request.prompt_ids))


def _end_of_messages(request: Request) -> int:
    """Where the template opens the reply, found from the end: a prompt may be long."""
    text = _rendered(request, request.messages or (), add_generation_prompt=False)
    if not text or not request.prompt_text.startswith(text):
        return 0
    opening = _encoded(request, request.prompt_text[len(text) :])
    at = len(request.prompt_ids) - len(opening)
    return at if opening and list(request.prompt_ids[at:]) == opening else 0


def _shared_start(request: Request) -> int:
    """The common beginning of this prompt and of others whose first user message is another."""
    messages = list(request.messages or ())
    at = next((i for i, message in enumerate(messages) if message.get("role") == "user"), None)
    if at is None:
        return 0
    others = [[*messages[:at], {"role": "user", "content": text}] for text in _OTHER_TEXTS]
    encoded = [_encoded(request, _rendered(request, other)) for other in others]
    return min(common(request.prompt_ids, ids) for ids in encoded)


def _rendered(request: Request, messages: Sequence[Mapping[str, Any]], **options: Any) -> str:  # noqa: ANN401
    """Another rendering; "" where the template refuses it."""
    try:
        return request.render(
            list(messages), request.tools, **{**request.template_options, **options}
        )
    except TemplateError:
        return ""


def _encoded(request: Request, text: str) -> list[int]:
    return list(request.tokenizer.encode(text, add_special_tokens=False))
