"""What several earlier places agree on."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple


class Continuation(NamedTuple):
    """How a text went on at earlier places, as far as every one went on alike.

    ``forked``: they differ in the id after it.  ``agreed``: how many of the places went on that
    far.  ``closed``: it ends with a delimiter.
    """

    ids: list[int]
    forked: bool
    agreed: int
    closed: bool


def common(stretches: Sequence[list[int]], delimiters: AbstractSet[int]) -> Continuation:
    """Go on while every one of ``stretches`` goes on alike; those that run out drop out.

    Ends with the first delimiter.
    """
    span, forked = max(stretches, key=len), False
    for other in stretches:
        if other != span:
            alike = _alike(span, other)
            if alike < min(len(span), len(other)):
                span, forked = span[:alike], True
    closed = not delimiters.isdisjoint(span)
    if closed:
        end = next(i for i, token in enumerate(span, 1) if token in delimiters)
        span, forked = span[:end], False
    agreed = sum(len(other) >= len(span) for other in stretches)
    return Continuation(span, forked, agreed, closed)


def _alike(a: list[int], b: list[int]) -> int:
    """Length of the common beginning."""
    for at, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return at
    return min(len(a), len(b))
