"""The table ``[plugins.fill-echo]`` of the config file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import field, frozen

from mlxfill import InputError

if TYPE_CHECKING:
    from attrs import Attribute

LONGEST_RUN = 64
"""Longest run of ids that may be looked up: the work per token grows with it."""


def _whole(low: int, high: int | None = None) -> Any:  # noqa: ANN401 - an attrs validator
    legal = f"at least {low}" if high is None else f"{low} to {high}"

    def check(_: object, attribute: Attribute[int], value: object) -> None:
        if not isinstance(value, int) or isinstance(value, bool):
            raise InputError(f"{attribute.name} must be a whole number, not {value!r}")
        if value < low or (high is not None and value > high):
            raise InputError(f"{attribute.name} must be {legal}, not {value!r}")

    return check


def _boolean(_: object, attribute: Attribute[bool], value: object) -> None:
    if not isinstance(value, bool):
        name = attribute.name.rstrip("_")
        raise InputError(f"{name} must be true or false, not {value!r}")


@frozen(kw_only=True)
class EchoSettings:
    """What is looked for and how much is offered, all in tokens.

    Raises ``InputError`` that names the value and its legal range.

    ``k``: length of the run at the end of the session that must have stood earlier.
    ``index_max``: tokens after which the index of a session takes no more; those still are copied.
    ``occurrences``: most earlier places that are compared, the nearest ones.
    ``max_span``: most tokens offered at once.
    ``assert_`` (``assert`` in the file): claim as determined, not only as likely, what at least
    two places agree on up to a delimiter.  Counts only if ``[trust] assert`` lists the plugin.
    ``max_sessions``, ``session_tokens``: how many sessions are remembered between requests and how
    many tokens all of them together; those not used for longest are forgotten first.
    """

    k: int = field(default=8, validator=_whole(1, LONGEST_RUN))
    index_max: int = field(default=131_072, validator=_whole(1))
    occurrences: int = field(default=24, validator=_whole(1))
    max_span: int = field(default=32, validator=_whole(2))
    assert_: bool = field(default=False, validator=_boolean)
    max_sessions: int = field(default=64, validator=_whole(1))
    session_tokens: int = field(default=524_288, validator=_whole(1))
