"""The table ``[plugins.spec-ngram]`` of the config file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

from attrs import asdict, field, frozen

from mlxfill import InputError

if TYPE_CHECKING:
    from attrs import Attribute

Match = Literal["first", "recent"]
"""Which earlier occurrence of a run counts: the oldest or the newest."""

LONGEST_INDEXED = 8
"""Longest run of ids that is looked up, so that the work per token stays small and flat."""


def _whole(_: object, attribute: Attribute[int], value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise InputError(f"{attribute.name} must be a whole number, not {value!r}")


def _positive(_: object, attribute: Attribute[int], value: int) -> None:
    _whole(_, attribute, value)
    if value < 1:
        raise InputError(f"{attribute.name} must be at least 1, not {value!r}")


def _one_of_matches(_: object, attribute: Attribute[str], value: object) -> None:
    if value not in get_args(Match):
        legal = " or ".join(f'"{match}"' for match in get_args(Match))
        raise InputError(f"{attribute.name} must be {legal}, not {value!r}")


def _boolean(_: object, attribute: Attribute[bool], value: object) -> None:
    if not isinstance(value, bool):
        raise InputError(f"{attribute.name} must be true or false, not {value!r}")


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

    max_ngram: int = field(default=3, validator=_positive)
    min_ngram: int = field(default=1, validator=_whole)
    depth: int = field(default=10, validator=_positive)
    max_depth: int = field(default=48, validator=_positive)
    match: Match = field(default="recent", validator=_one_of_matches)
    adaptive: bool = field(default=True, validator=_boolean)

    def __attrs_post_init__(self) -> None:
        longest = min(self.max_ngram, LONGEST_INDEXED)
        if not 1 <= self.min_ngram <= longest:
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
