"""What a check saw while it found nothing wrong."""

from __future__ import annotations

from attrs import define


@define
class Conformance:
    """Counters of a passed check: a plugin that never speaks passes too, so ask how often it did.

    ``stories``: sessions played.  ``offers``: proposals or non-empty drafts seen.  ``accepted``:
    tokens of them that entered a session.
    """

    name: str
    stories: int = 0
    offers: int = 0
    accepted: int = 0
