"""What a plugin raised, in one line."""

from __future__ import annotations

LONGEST = 500
"""Characters of a message that are shown; a plugin may have put a whole prompt into it."""


def one_line(error: BaseException) -> str:
    """Type and message of an exception, whatever its text does."""
    try:
        message = " ".join(str(error).split())
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - a plugin's exception may be broken itself
        message = ""
    if len(message) > LONGEST:
        message = f"{message[:LONGEST]}..."
    return f"{type(error).__name__}: {message}" if message else type(error).__name__
