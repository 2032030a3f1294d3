"""The proposal source: matches what was generated against the rows of the request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from mlxfill import Policy, Proposal, TokenView
from mlxfill_fill_strict.reading import Verdict

if TYPE_CHECKING:
    from mlxfill_fill_strict.context import Context
    from mlxfill_fill_strict.rows import Row, RowSet
    from mlxfill_fill_strict.settings import StrictSettings
    from mlxfill_fill_strict.spans import Ids

_LAST_BEFORE = 2
"""Ids before a call that announce it."""


class StrictSource:
    """Offers a row's span where its trigger ends the reply and the context is proven.

    ``counts["parse_fallback"]`` is the number of tool calls that did not parse; the first one ends
    all offers.
    """

    name = "fill-strict"

    def __init__(
        self,
        compiled: RowSet,
        context: Context,
        settings: StrictSettings,
        begun: Sequence[int] = (),
    ) -> None:
        """``begun``: ids at the prompt's end that belong to the reply."""
        self.counts = {"parse_fallback": 0}
        self._rows = _by_last_id(compiled.rows)
        self._policy, self._max_span = Policy(settings.policy), settings.max_span
        self._near = _runs_before(compiled) if self._policy is Policy.ASSERT else {}
        self._context = context
        self._ids = list(begun)
        self._last = begun[-1] if begun else -1
        self._span: Ids = ()
        self._row: Row | None = None

    def observe(self, ids: Sequence[int]) -> None:
        """Add tokens to the reply, and see whether they are the span under way."""
        self._ids.extend(ids)
        self._last = ids[-1]
        if self._span:
            agrees = self._span[: len(ids)] == tuple(ids)
            self._span = self._span[len(ids) :] if agrees else ()

    def propose(self, view: TokenView) -> Proposal | None:  # noqa: ARG002 - all was observed
        """Offer the rest of the span under way, or a new one."""
        if not self._span:
            rows = self._rows.get(self._last)
            if rows is None:
                return None
            self._match(rows)
        if not self._span or self._row is None:
            return None
        evidence = len(self._row.trigger) + len(self._row.emit) - len(self._span)
        ids = self._span[: self._max_span]
        return Proposal(ids, self._policy, self._row.origin, evidence=evidence)

    def near(self) -> bool:
        """Whether a trigger lacks its last id only."""
        runs = self._near.get(self._last)
        return runs is not None and any(self._ends_with(run) for run in runs)

    def resolved(self, proposal: Proposal, accepted: int) -> None:
        """Nothing to learn that the observed tokens do not tell."""

    def _match(self, rows: Sequence[Row]) -> None:
        """Begin the span of the longest trigger that stands in a proven context."""
        for row in rows:
            if not self._ends_with(row.trigger):
                continue
            verdict = self._context.judge(self._ids, row)
            if verdict is Verdict.PROVEN:
                self._row, self._span = row, row.emit
                return
            if verdict is not Verdict.OPEN:
                self.counts["parse_fallback"] += verdict is Verdict.MALFORMED
                self._rows, self._near = {}, {}
                return

    def _ends_with(self, ids: Ids) -> bool:
        return tuple(self._ids[-len(ids) :]) == ids


def _by_last_id(rows: Sequence[Row]) -> Mapping[int, tuple[Row, ...]]:
    """Rows by the last id of their trigger, the longest trigger first."""
    buckets: dict[int, tuple[Row, ...]] = {}
    for row in sorted(rows, key=lambda row: -len(row.trigger)):
        last = row.trigger[-1]
        buckets[last] = (*buckets.get(last, ()), row)
    return buckets


def _runs_before(compiled: RowSet) -> Mapping[int, tuple[Ids, ...]]:
    """What stands right before the last id of each trigger, by its last id."""
    buckets: dict[int, tuple[Ids, ...]] = {}
    for row in compiled.rows:
        run = row.trigger[:-1] or compiled.before[-_LAST_BEFORE:]
        if run and run not in buckets.get(run[-1], ()):
            buckets[run[-1]] = (*buckets.get(run[-1], ()), run)
    return buckets
