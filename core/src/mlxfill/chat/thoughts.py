"""What an assistant thought in earlier turns, where the chat template looks for it.

Most templates read ``reasoning_content``; some read ``reasoning``, gpt-oss's reads ``thinking``,
and Mistral's read a part of the content.  Which it is is found out by two short conversations.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from mlxfill.errors import TemplateError
from mlxfill.tool_calls.history import CONVERSATION, with_calls_told
from mlxfill.tool_calls.messages import THOUGHTS

if TYPE_CHECKING:
    from mlxfill.tool_calls.probe import CallProbe

Message: TypeAlias = Mapping[str, Any]
Form: TypeAlias = Callable[[Message], dict[str, Any]]

_OURS = THOUGHTS[0]
_THOUGHT, _SAID = "Rain was forecast.", "Let me see."
_ASKED, _CALLED, _ANSWERED = CONVERSATION
_CALLING = (_ASKED, {**_CALLED, _OURS: _THOUGHT}, _ANSWERED)
_REPLYING = (_ASKED, {"role": "assistant", "content": _SAID, _OURS: _THOUGHT}, _ASKED)
_BOTH = (_ASKED, {**_CALLED, _OURS: _THOUGHT, "content": _SAID}, _ANSWERED)


def with_thoughts_told(
    messages: Sequence[dict[str, Any]], probe: CallProbe
) -> list[dict[str, Any]]:
    """The messages with thoughts as the template reads them.

    Where it takes no content beside thoughts and calls, the content follows the thoughts.

    :param messages: thoughts are in ``reasoning_content``.
    :param probe: asks the template, with the tools and options of this prompt.
    """
    if not any(message.get(_OURS) for message in messages):
        return list(messages)
    form, takes_both = probe.once(_found)
    return [form(message if takes_both else _joined(message)) for message in messages]


def _found(probe: CallProbe) -> tuple[Form, bool]:
    """The form of thoughts that the template writes, and whether a content beside calls, too."""
    forms: list[Form] = [*(partial(_under, name) for name in THOUGHTS), _in_parts]
    form = next((form for form in forms if _reads(probe, form)), forms[0])
    return form, _says(probe, _BOTH, form)


def _reads(probe: CallProbe, form: Form) -> bool:
    """Whether the template writes thoughts of this form, beside calls or without."""
    return _says(probe, _CALLING, form) or _says(probe, _REPLYING, form)


def _says(probe: CallProbe, messages: Iterable[Message], form: Form) -> bool:
    """Whether the thought is written, and not as a part of what Python or JSON calls a table."""
    try:
        text = probe.written(with_calls_told([form(each) for each in messages], probe))
    except TemplateError:
        return False
    quoted = repr(_THOUGHT), json.dumps(_THOUGHT)
    return _THOUGHT in text and not any(each in text for each in quoted)


def _under(name: str, message: Message) -> dict[str, Any]:
    """The message with its thoughts under a name."""
    if not message.get(_OURS):
        return dict(message)
    kept = {key: value for key, value in message.items() if key not in THOUGHTS}
    return {**kept, name: message[_OURS]}


def _in_parts(message: Message) -> dict[str, Any]:
    """The message with its thoughts as a part of the content."""
    thought, content = message.get(_OURS), message.get("content")
    if not thought:
        return dict(message)
    parts = [{"type": "thinking", "thinking": thought}]
    parts += [{"type": "text", "text": content}] if content else []
    return {**message, "content": parts}


def _joined(message: Message) -> dict[str, Any]:
    """The message with its content at the end of its thoughts, where it has both, and calls."""
    thought, content = message.get(_OURS), message.get("content")
    if not (thought and content and message.get("tool_calls")):
        return dict(message)
    return {**message, "content": "", _OURS: f"{thought}\n\n{content}"}
