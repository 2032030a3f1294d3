"""The table ``[plugins.spec-ngram]`` of the config file."""

from __future__ import annotations

from typing import Literal, get_args

from attrs import asdict, field, frozen

from mlxfill import InputError, rules

Match = Literal["first", "recent"]
"""Which earlier occurrence of a run counts: the oldest or the newest."""

LONGEST_INDEXED = 8
"""Longest run of ids that is looked up, so that the work per token stays small and flat."""


@frozen
class NgramSettings:
    """How to look up.  Raises ``InputError`` that names the value and its legal range.

    ``max_ngram``, ``min_ngram``: runs of so many ids at the end of the history are looked up, the
    longest first.  Runs of more than 8 ids are not looked up but recognised: an occurrence
    that was found is followed for as long as it agrees.
    ``depth``: ids offered for a match of three ids, and for every match when ``adaptive`` is off.
    ``max_depth``: most ids offered at once.
    ``match``: the ``"first"`` or the most ``"recent"`` earlier occurrence.
    ``adaptive``: follow matches, let the draft grow with the match, resume after an edit.
    """

    max_ngram: int = field(default=3, validator=rules.whole(1))
    min_ngram: int = field(default=1, validator=rules.whole(1))
    depth: int = field(default=10, validator=rules.whole(1))
    max_depth: int = field(default=48, validator=rules.whole(1))
    match: Match = field(default="recent", validator=rules.one_of(*get_args(Match)))
    adaptive: bool = field(default=True, validator=rules.boolean)

    def __attrs_post_init__(self) -> None:
        longest = min(self.max_ngram, LONGEST_INDEXED)
        if self.min_ngram > longest:
            raise InputError(
                f"min_ngram must be 1 to {longest} with max_ngram {self.max_ngram}, not"
                f" {self.min_ngram}"
            )
        if self.depth > self.max_depth:
            raise InputError(
                f"depth {self.depth} is above max_depth {self.max_depth}: lower the first or raise"
                " the second"
            )

    @property
    def lengths(self) -> range:
        """Lengths of the runs that are looked up, ascending."""
        return range(self.min_ngram, min(self.max_ngram, LONGEST_INDEXED) + 1)

    @property
    def namespace(self) -> str:
        """Identity of the method with these values: rows of one namespace draft alike."""
        return "ngram:" + ",".join(f"{name}={value}" for name, value in asdict(self).items())
