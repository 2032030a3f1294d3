"""Sequences that draft together: each call of a round is made once, for all of them."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import mlx.core as mx

from mlxfill.plugins.faults import parted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mlxfill.contracts import DraftRows, DraftSampling, Fault
    from mlxfill.model.reading import Stream


T = TypeVar("T")


class Member(Protocol):
    """One sequence's part of a drafter."""

    group: DraftGroup
    sampling: DraftSampling
    stream: Stream
    vocab_size: int
    alive: bool
    leaves_out: bool

    def failed(self, where: str, error: BaseException) -> Fault:
        """It drafts no more."""


class DraftGroup:
    """Rows of a drafter, and whose they are.  What goes wrong in a call is all members' fault."""

    def __init__(self, rows: DraftRows) -> None:
        """``rows`` of one member, who enters by itself."""
        self.rows = rows
        self.members: list[Member] = []
        self._entered: dict[Member, tuple[list[int], mx.array | None]] = {}

    def call(self, where: str, act: Callable[[], T]) -> T | None:
        """Call a plugin; None where that failed, and nobody here drafts any more.

        :raises PluginError: somebody may not go on without.
        """
        try:
            with mx.stream(self.members[0].stream):
                return act()
        except BaseException as error:
            faults = [(member, member.failed(where, error)) for member in list(self.members)]
            for member, fault in faults:
                if not member.leaves_out:
                    raise parted(fault) from error
            return None

    # --- who ------------------------------------------------------------------------------------

    def join(self, member: Member) -> None:
        """One that drafted alone drafts here from now on."""
        alone = member.group

        def moved() -> None:
            self.rows.append([member.sampling], [alone.rows.capture(0)])
            alone.rows.close()

        self.members.append(member)
        member.group = self
        self.call("append", moved)

    def leave(self, member: Member) -> None:
        """One drafts no more."""
        self._entered.pop(member, None)
        at = self.members.index(member)
        self.members.remove(member)
        if not self.members:
            self.rows.close()
        elif any(each.alive for each in self.members):
            stay = [each for each in range(len(self.members) + 1) if each != at]
            self.call("keep", lambda: self.rows.keep(stay))

    # --- a round --------------------------------------------------------------------------------

    def draft(
        self, wanted: Sequence[tuple[Member, int, int]], depth: int
    ) -> dict[Member, list[int] | mx.array]:
        """Drafts of members by their pending id and the position after it; others sit out."""
        asked = {member: (pending, position) for member, pending, position in wanted}
        pending = [asked[each][0] if each in asked else None for each in self.members]
        positions = [asked[each][1] if each in asked else 0 for each in self.members]
        answer = self.call("draft", lambda: self._checked(pending, depth, positions))
        if answer is None:
            return {}
        return {each: answer[at] for at, each in enumerate(self.members) if each in asked}

    def _checked(
        self, pending: Sequence[int | None], depth: int, positions: Sequence[int]
    ) -> list[list[int]] | mx.array:
        """What the rows answer, or an error that says what is wrong with it."""
        answer: Any = self.rows.draft(pending, depth, positions)
        size = self.members[0].vocab_size
        if isinstance(answer, mx.array):
            if answer.ndim != 2 or answer.shape[0] != len(pending) or answer.shape[1] > depth:  # noqa: PLR2004
                raise ValueError(f"answered an array of shape {answer.shape}")
            if not mx.issubdtype(answer.dtype, mx.integer):
                raise TypeError(f"answered an array of {answer.dtype}")
            return mx.clip(answer, 0, size - 1)
        drafts = [list(islice(each, depth)) for _, each in zip(pending, answer, strict=True)]
        for ids, one in zip(drafts, pending, strict=True):
            if one is not None and not all(type(t) is int and 0 <= t < size for t in ids):
                raise ValueError(f"ids {ids!r} are not all in the vocabulary")
        return drafts

    def entered(self, member: Member, ids: list[int], aux_states: mx.array | None) -> None:
        """``ids`` follow the old pending id of a member that drafted; ``commit`` comes next."""
        self._entered[member] = ids, aux_states

    def commit(self) -> None:
        """End the round of those who drafted."""
        if not self._entered:
            return
        nothing: tuple[list[int], mx.array | None] = ([], None)
        parts = [self._entered.get(each, nothing) for each in self.members]
        self._entered = {}
        aux_states = _side_by_side([each for _, each in parts])
        self.call("commit", lambda: self.rows.commit([ids for ids, _ in parts], aux_states))

    def consume(self, told: dict[Member, tuple[Sequence[int], mx.array | None]]) -> None:
        """Tell members of tokens that others chose, ``[1, n, n*H]`` states with them."""
        parts = [told.get(each, ((), None)) for each in self.members]
        lengths = [len(ids) for ids, _ in parts]
        ids = mx.array([[*ids, *[0] * (max(lengths) - len(ids))] for ids, _ in parts])
        aux_states = _side_by_side([each for _, each in parts])
        self.call("consume", lambda: self.rows.consume(ids, lengths, aux_states))


def _side_by_side(aux_states: Sequence[mx.array | None]) -> mx.array | None:
    """``[1, n, n*H]`` of some rows as ``[B, S, n*H]``, zeros where there are none."""
    found = [each for each in aux_states if each is not None]
    if not found:
        return None
    size, like = max(each.shape[1] for each in found), found[0]
    if len(aux_states) == 1:
        return like

    def padded(each: mx.array | None) -> mx.array:
        if each is None:
            return mx.zeros((1, size, like.shape[2]), like.dtype)
        return mx.pad(each, [(0, 0), (0, size - each.shape[1]), (0, 0)])

    return mx.concatenate([padded(each) for each in aux_states])
