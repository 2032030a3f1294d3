"""Messages that would be lost, or misread, because of their role.

Many chat templates write nothing for a role that they do not know; others write any role as it is,
and the model reads a word that it was never trained on.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from mlxfill.errors import InputError
from mlxfill.nearest import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Messages = Sequence[Mapping[str, Any]]

ROLES = ("system", "developer", "user", "assistant", "tool", "function")
"""Those of OpenAI's format."""
NEWER = "developer"
OWN_NAME = re.compile(rf"(?:{'|'.join(ROLES)})[^a-z]")
"""``user_1``, ``assistant-b``: somebody's own names, not slips of the pen."""


def with_known_roles(messages: Sequence[dict[str, Any]], template: str) -> list[dict[str, Any]]:
    """``developer`` as ``system``, which OpenAI called it before, unless the template names it.

    After a message of the system it is the end of that one: many templates take no second one, or
    leave it out.

    :param template: its source, "" where there is none to look at.
    """
    if _quoted(NEWER, template):
        return list(messages)
    made: list[dict[str, Any]] = []
    for message in messages:
        last = made[-1] if made else {}
        if message["role"] != NEWER:
            made.append(message)
        elif last.get("role") == "system":
            texts = (last.get("content"), message.get("content"))
            made[-1] = {**last, "content": "\n\n".join(text for text in texts if text)}
        else:
            made.append({**message, "role": "system"})
    return made


def check_roles(
    messages: Messages, text: str, template: str, write: Callable[[Messages], str]
) -> None:
    """Refuse a role that is misspelt, or whose message the template leaves out.

    A role that the template names, or one that it writes as it stands, is legal.

    :param text: what the template made of ``messages``.
    :param template: its source, "" where there is none to look at.
    :param write: applies it to other messages.
    :raises InputError: names the message, its role and those that the template knows.
    """
    roles = [str(message.get("role")) for message in messages]
    named = {role for role in set(roles) if _quoted(role, template)}
    place = 0
    for at, role in enumerate(roles):
        if role in named:
            continue
        said = _said(messages[at])
        # Messages stand in their order: a long conversation is gone through once.
        place = text.find(said, max(place, 0))
        place = text.find(said) if place < 0 else place
        if _misspelt(role) or (place < 0 and _left_out(at, messages, text, write)):
            known = [name for name in ROLES if name == "user" or _quoted(name, template)]
            known = known if len(known) > 1 else list(ROLES)
            hint = did_you_mean(role, known) or f"; it knows {', '.join(known)}"
            raise InputError(
                f"message {at} has the role {role!r}, which the chat template does not know{hint}"
            )


def _quoted(role: str, template: str) -> bool:
    return f"'{role}'" in template or f'"{role}"' in template


def _misspelt(role: str) -> bool:
    return role not in ROLES and not OWN_NAME.match(role) and bool(did_you_mean(role, ROLES))


def _said(message: Mapping[str, Any]) -> str:
    """What a template that knows the role would write; "" for nothing that can be looked for."""
    content = message.get("content")
    return content.strip() if isinstance(content, str) else ""


def _left_out(at: int, messages: Messages, text: str, write: Callable[[Messages], str]) -> bool:
    asked = {**messages[at], "role": "user"}
    before, after = messages[:at], messages[at + 1 :]
    try:
        # A template may write a text in another way: does anything depend on this message?  And
        # would it, from a user?  Some templates forget earlier turns, whoever wrote them.
        return write([*before, *after]) == text != write([*before, asked, *after])
    except Exception:  # noqa: BLE001 - a template raises what it likes
        return False
