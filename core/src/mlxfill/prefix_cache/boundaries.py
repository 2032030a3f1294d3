"""Where in a prompt a later one may part from it: the places worth keeping caches of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import frozen

from mlxfill.errors import TemplateError
from mlxfill.prefix_cache.store import common, packed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mlxfill.contracts import Request
    from mlxfill.prefix_cache.store import Ids

LEAST = 64
"""A shorter beginning is processed as quickly as it is found."""
_OTHER_TEXTS = ("A", "9", "é")
_MOST_STARTS = 8


def boundaries(request: Request, starts: SharedPrefixes) -> list[int]:
    """Numbers of prompt tokens, ascending, all below the prompt's length.

    For chat messages: the beginning that any conversation with this system message and these
    tools has, and the end of the last message, before the template opens the reply (what it puts
    there may look different once the reply stands in the conversation).  For other prompts: all
    but the last token.
    """
    if request.messages is None:
        found = {len(request.prompt_ids) - 1}
    else:
        found = {starts.shared(request), _end_of_messages(request)}
    return sorted(at for at in found if LEAST <= at < len(request.prompt_ids))


def _end_of_messages(request: Request) -> int:
    """Where the template opens the reply, found from the end: a prompt may be long."""
    text = _rendered(request, request.messages or (), add_generation_prompt=False)
    if not text or not request.prompt_text.startswith(text):
        return 0
    opening = _encoded(request, request.prompt_text[len(text) :])
    at = len(request.prompt_ids) - len(opening)
    return at if opening and list(request.prompt_ids[at:]) == opening else 0


@frozen
class _Start:
    """What prompts with this head (system messages, tools, template options) begin with."""

    head: tuple[object, ...]
    ids: Ids


class SharedPrefixes:
    """What prompts of the same system messages and tools begin with, the newest few.

    To find that out they are rendered and read three times, and tools may be long.
    """

    def __init__(self) -> None:
        """Nothing is known."""
        self._known: list[_Start] = []

    def shared(self, request: Request) -> int:
        """How far prompts whose first user message is another begin as this one does."""
        messages = request.messages or ()
        at = next((i for i, message in enumerate(messages) if message.get("role") == "user"), None)
        if at is None:
            return 0
        head = (messages[:at], request.tools, request.template_options)
        start = next((start for start in self._known if start.head == head), None)
        # A template may write the date.
        if start is None or common(packed(request.prompt_ids), start.ids) < len(start.ids):
            start = _Start(head, _found_start(request, list(messages[:at])))
            self._known = [old for old in self._known if old.head != head][1 - _MOST_STARTS :]
            self._known.append(start)
        return len(start.ids)


def _found_start(request: Request, head: list[Mapping[str, Any]]) -> Ids:
    """The common beginning of this prompt and of others after the messages ``head``."""
    others = [[*head, {"role": "user", "content": text}] for text in _OTHER_TEXTS]
    prompt = packed(request.prompt_ids)
    encoded = (packed(_encoded(request, _rendered(request, other))) for other in others)
    return prompt[: min(common(prompt, ids) for ids in encoded)].copy()


def _rendered(request: Request, messages: Sequence[Mapping[str, Any]], **options: object) -> str:
    """Another rendering; "" where the template refuses it."""
    try:
        return request.render(
            list(messages), request.tools, **{**request.template_options, **options}
        )
    except TemplateError:
        return ""


def _encoded(request: Request, text: str) -> list[int]:
    return list(request.tokenizer.encode(text, add_special_tokens=False))
