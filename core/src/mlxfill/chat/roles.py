"""Messages that would be lost, or misread, because of their role.

Many chat templates write nothing for a role that they do not know; others write any role as it is,
and the model reads a word that it was never trained on.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from mlxfill.errors import InputError, TemplateError
from mlxfill.nearest import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Messages = Sequence[Mapping[str, Any]]

ROLES = ("system", "developer", "user", "assistant", "tool", "function")
"""Those of OpenAI's format."""
SYSTEM, NEWER = FIRST = ("system", "developer")
"""What comes before a conversation, by its old and its new name."""
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
        if message["role"] != NEWER:
            made.append(message)
        elif made and made[-1].get("role") == SYSTEM:
            made[-1] = _joined(made[-1], message)
        else:
            made.append({**message, "role": SYSTEM})
    return made


def written(
    given: Sequence[dict[str, Any]], template: str, write: Callable[[Messages], str]
) -> tuple[list[dict[str, Any]], str]:
    """The messages in known roles and what the template makes of them; it leaves out none.

    Where it takes one message of the system only, those at the beginning are joined.

    :param template: its source, "" where there is none to look at.
    :param write: applies it.
    :raises InputError: as ``check_roles``.
    :raises TemplateError: as ``write``.
    """
    messages = with_known_roles(given, template)
    try:
        text = write(messages)
        check_roles(messages, text, template, write, given)
    except (InputError, TemplateError):
        joined = _one_system(messages)
        if len(joined) == len(messages):
            raise
        text = write(joined)
        check_roles(joined, text, template, write, given)
        return joined, text
    return messages, text


def check_roles(
    messages: Messages,
    text: str,
    template: str,
    write: Callable[[Messages], str],
    given: Messages | None = None,
) -> None:
    """Refuse a role that is misspelt, or whose message the template leaves out.

    A role that the template names, or one that it writes as it stands, is legal; but a message of
    the system may be written at the beginning only.

    :param text: what the template made of ``messages``.
    :param template: its source, "" where there is none to look at.
    :param write: applies it to other messages.
    :param given: the caller's, of which those of the system may have been renamed and joined.
    :raises InputError: names the message, its role and those that the template knows.
    """
    roles = [str(message.get("role")) for message in messages]
    named = {role for role in set(roles) if _quoted(role, template)}
    place = 0
    for at, role in enumerate(roles):
        early = role in FIRST and at > 0
        if role in named and not early:
            continue
        said = _said(messages[at])
        # Messages stand in their order: a long conversation is gone through once.
        place = text.find(said, max(place, 0))
        place = text.find(said) if place < 0 else place
        lost = place < 0 and _left_out(at, messages, text, write)
        if lost and role in named:
            raise InputError(
                f"{_as_given(at, messages, given)}, which the chat template writes at the "
                "beginning only: put what it says there, or into a message of the user"
            )
        if lost or _misspelt(role):
            known = [name for name in ROLES if name == "user" or _quoted(name, template)]
            known = known if len(known) > 1 else list(ROLES)
            hint = did_you_mean(role, known) or f"; it knows {', '.join(known)}"
            raise InputError(
                f"{_as_given(at, messages, given)}, which the chat template does not know{hint}"
            )


def _as_given(at: int, messages: Messages, given: Messages | None) -> str:
    """Number and role of a message in the caller's list, where those of the system stand apart."""
    given = messages if given is None else given
    # All others are the same, in the same order: they tell how many were joined before.
    ours, theirs = (
        [n for n, m in enumerate(each) if m.get("role") not in FIRST] for each in (messages, given)
    )
    number = at + max((b - a for a, b in zip(ours, theirs, strict=True) if a <= at), default=0)
    return f"message {number} has the role {str(given[number].get('role'))!r}"


def _one_system(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those of the system, by either name, before all others as one."""
    made: list[dict[str, Any]] = []
    for message in messages:
        if len(made) == 1 and made[0].get("role") in FIRST and message.get("role") in FIRST:
            made[0] = _joined(made[0], message)
        else:
            made.append(message)
    return made


def _joined(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    texts = (first.get("content"), second.get("content"))
    return {**first, "content": "\n\n".join(text for text in texts if text)}


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
