"""Messages without content: some chat templates take them, others fail for want of it."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Messages = Sequence[dict[str, Any]]


def first_missing(messages: Messages, write: Callable[[Messages], object]) -> int | None:
    """The first message that the template refuses for want of a content.

    :param messages: what ``write`` refuses as they are.
    :param write: applies the template, or raises.
    :returns: its number; None where something else is wrong.
    """
    bare = [at for at, message in enumerate(messages) if "content" not in message]

    def taken(count: int) -> bool:
        """Whether it is enough that the last ``count`` of them have one."""
        filled = set(bare[len(bare) - count :])
        try:
            write([{**m, "content": ""} if at in filled else m for at, m in enumerate(messages)])
        except Exception:  # noqa: BLE001 - a template raises what it likes
            return False
        return True

    # Each content more can only help: as many of the last ones as it takes.
    count = bisect_left(range(len(bare) + 1), True, lo=1, key=taken)  # noqa: FBT003 - looked for
    return bare[-count] if count <= len(bare) else None
