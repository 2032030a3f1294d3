"""The proof that a reply is at a place where a span is fixed.

A span may enter only where everything before its trigger is an optional closed reasoning block
and complete, valid tool calls: then the trigger is no prose, no quoted example and no data.
"""

from __future__ import annotations

from collections.abc import Sequence

from mlxfill_fill_strict.reading import CallReader, Markers, Verdict
from mlxfill_fill_strict.rows import Kind, Row

LONGEST_CONTEXT = 65_536
"""Generated tokens beyond which nothing is filled."""
_TAIL = 32
"""Ids that hold an end marker and the whitespace after it."""


class Context:
    """How much of a reply is proven to be reasoning and complete calls."""

    def __init__(self, markers: Markers, reader: CallReader, begun: str = "") -> None:
        """``begun``: text of the reply before the first generated id."""
        self._markers, self._reader, self._begun = markers, reader, begun
        self._settled = 0
        self._has_calls = False

    def judge(self, ids: Sequence[int], row: Row) -> Verdict:
        """Whether ``row`` may fire.

        :param ids: all that was generated; ends with the row's trigger.
        """
        if len(ids) > LONGEST_CONTEXT:
            return Verdict.NEVER
        if row.kind is Kind.CLOSE:
            return self._judge_close(ids, row)
        verdict = self._settle(ids, len(ids) - len(row.trigger))
        if row.kind is Kind.TURN_END and verdict is Verdict.PROVEN and not self._has_calls:
            return Verdict.OPEN
        return verdict

    def _judge_close(self, ids: Sequence[int], row: Row) -> Verdict:
        """Whether the row makes the open call complete."""
        completed = self._markers.decode([*ids[self._settled :], *row.emit])
        verdict, _ = self._read(completed, exact=True)
        return verdict if verdict is Verdict.PROVEN else Verdict.OPEN

    def _settle(self, ids: Sequence[int], end: int) -> Verdict:
        """Prove the ids before ``end``; what is proven once is not looked at again."""
        unread = ids[self._settled : end]
        if not unread and not self._begun:
            return Verdict.PROVEN
        if not self._may_be_complete(unread):
            return Verdict.OPEN
        verdict, has_calls = self._read(self._markers.decode(unread))
        if verdict is Verdict.PROVEN:
            self._settled, self._begun = end, ""
            self._has_calls |= has_calls
        return verdict

    def _may_be_complete(self, ids: Sequence[int]) -> bool:
        """A quick look at the end: an end marker stands there, or nothing at all."""
        tail = (self._begun + self._markers.decode(ids[-_TAIL:])).rstrip()
        return not tail or tail.endswith(self._markers.ends)

    def _read(self, text: str, *, exact: bool = False) -> tuple[Verdict, bool]:
        """What stands after the settled part, and whether there are calls in it."""
        rest = (self._begun + text).lstrip()
        start, end = self._markers.think_start, self._markers.think_end
        if start and not self._settled and rest.startswith(start):
            reasoning, closed, rest = rest.removeprefix(start).partition(end)
            if not closed:
                return Verdict.OPEN, False
            if start in reasoning:
                return Verdict.NEVER, False
        return self._reader.verdict(rest, exact=exact), bool(rest.strip())
