"""What a check saw while it found nothing wrong."""

from __future__ import annotations

import warnings

from attrs import define


class ConformanceWarning(UserWarning):
    """A plugin breaks no contract, and yet the check could not try all that it should."""


@define
class Conformance:
    """Counters of a passed check: a plugin that never speaks passes too, so ask how often it did.

    ``stories``: sessions played.  ``offers``: what an engine could use, that is proposals of two
    ids or more, non-empty drafts, windows that were taken back.  ``accepted``: tokens of them that
    entered a session.  ``judged``: offers that came before a model, or were appended unread.
    ``asserted``: tokens that were appended unread, or asserted in a given session.
    """

    name: str
    stories: int = 0
    offers: int = 0
    accepted: int = 0
    judged: int = 0
    asserted: int = 0

    def warn(self, said: str) -> None:
        """Warn the author, at the line that called the check."""
        warnings.warn(f"{self.name}: {said}", ConformanceWarning, stacklevel=3)
