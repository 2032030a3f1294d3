"""What sequences of token ids share, and where they part."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

Ids: TypeAlias = tuple[int, ...]


def common_prefix(sequences: Iterable[Ids]) -> Ids:
    """The longest beginning of all ``sequences`` (at least one)."""
    first, *others = sequences
    length = len(first)
    for other in others:
        length = min(length, shared_length(first, other))
    return first[:length]


def common_suffix(sequences: Iterable[Ids]) -> Ids:
    """The longest end of all ``sequences`` (at least one)."""
    return common_prefix(ids[::-1] for ids in sequences)[::-1]


def shared_length(a: Sequence[object], b: Sequence[object]) -> int:
    """How many ids, or letters, two sequences have in common at their beginnings."""
    length = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        length += 1
    return length


def singles_out(mine: Ids, others: Iterable[Ids], start: int, cap: int) -> int | None:
    """Length of the shortest beginning of ``mine`` that no other sequence can be confused with.

    :param others: beginnings of what else may be written; one that ends early may go on anyhow.
    :param start: ids that all are known to share.
    :param cap: most ids after ``start``.
    :returns: the length, above ``start``; None when ``cap`` ids or all of ``mine`` do not tell.
    """
    length = start + 1
    for other in others:
        shared = shared_length(mine, other)
        if shared == len(other):
            return None
        length = max(length, shared + 1)
    return length if length <= min(len(mine), start + cap) else None


def find(ids: Sequence[int], wanted: Sequence[int]) -> int:
    """Where ``wanted`` first stands in ``ids``; -1 when it does not."""
    size = len(wanted)
    return next((i for i in range(len(ids) - size + 1) if ids[i : i + size] == wanted), -1)
