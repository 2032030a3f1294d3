"""What an assistant thought in earlier turns, where the chat template looks for it.

Most templates read ``reasoning_content``; some read ``reasoning``, gpt-oss's reads ``thinking``,
and Mistral's read a part of the content.  Which it is is found out by two short conversations.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

from mlxfill.messages import THOUGHTS
from mlxfill.tool_calls.history import PROBE, with_calls_told

Message: TypeAlias = Mapping[str, Any]
Write: TypeAlias = Callable[[Sequence[Message]], str]
Form: TypeAlias = Callable[[Message], dict[str, Any]]

_OURS = THOUGHTS[0]
_THOUGHT, _SAID = "Rain was forecast.", "Let me see."
_CALLING = (PROBE[0], {**PROBE[1], _OURS: _THOUGHT}, PROBE[2])
_REPLYING = (PROBE[0], {"role": "assistant", "content": _SAID, _OURS: _THOUGHT}, PROBE[0])
_BOTH = (PROBE[0], {**PROBE[1], _OURS: _THOUGHT, "content": _SAID}, PROBE[2])


def with_thoughts_told(messages: Sequence[dict[str, Any]], write: Write) -> list[dict[str, Any]]:
    """The messages with thoughts as the template reads them.

    Where it takes no content beside thoughts and calls, the content follows the thoughts.

    :param messages: thoughts are in ``reasoning_content``.
    :param write: applies the template.
    """
    if not any(message.get(_OURS) for message in messages):
        return list(messages)
    forms: list[Form] = [*(partial(_under, name) for name in THOUGHTS), _in_parts]
    form = next((form for form in forms if _reads(write, form)), forms[0])
    joined = [_joined(message) for message in messages]
    joins = joined != list(messages) and not _says(write, _BOTH, form)
    return [form(message) for message in (joined if joins else messages)]


def _reads(write: Write, form: Form) -> bool:
    """Whether the template writes thoughts of this form, beside calls or without."""
    return _says(write, _CALLING, form) or _says(write, _REPLYING, form)


def _says(write: Write, messages: Iterable[Message], form: Form) -> bool:
    """Whether the thought is written, and not as a part of what Python or JSON calls a table."""
    try:
        text = write(with_calls_told([form(each) for each in messages], write))
    except Exception:  # noqa: BLE001 - a template raises what it likes
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
