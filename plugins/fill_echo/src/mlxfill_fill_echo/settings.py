"""The table ``[plugins.fill-echo]`` of the config file."""

from __future__ import annotations

from attrs import field, frozen

from mlxfill import rules

LONGEST_RUN = 64
"""Longest run of ids that may be looked up: the work per token grows with it."""


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

    k: int = field(default=8, validator=rules.whole(1, LONGEST_RUN))
    index_max: int = field(default=524_288, validator=rules.whole(1))
    occurrences: int = field(default=24, validator=rules.whole(1))
    max_span: int = field(default=32, validator=rules.whole(2))
    assert_: bool = field(default=False, validator=rules.boolean)
    max_sessions: int = field(default=64, validator=rules.whole(1))
    session_tokens: int = field(default=524_288, validator=rules.whole(1))
