"""Rows of a drafter played without a model, each beside a twin that is alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mlx.core as mx
from attrs import define, field

from mlxfill_testing.conformance.breach import Breach, blamed
from mlxfill_testing.conformance.rows.checkpoints import check_checkpoint, snapshot, stored
from mlxfill_testing.conformance.sessions.playing import short

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlxfill import DraftCheckpoint, DraftProvider, DraftRows, DraftSampling, TargetView
    from mlxfill_testing.conformance.rows.aux_states import AuxStates


@define
class Setting:
    """What the rows of a story share."""

    provider: DraftProvider
    target: TargetView
    sampling: DraftSampling
    aux_states: AuxStates

    def open(self, checkpoints: Sequence[DraftCheckpoint | None]) -> DraftRows:
        """New rows."""
        return self.provider.open(self.target, [self.sampling] * len(checkpoints), checkpoints)


@define
class Row:
    """One session: its tokens, the last one pending, and a twin that drafts for it alone.

    ``drafted``, ``told``: it drafted tokens; others chose some.
    """

    tokens: list[int]
    alone: DraftRows
    drafted: bool = False
    told: bool = False


@define
class Batch:
    """Rows of one drafter while a story is played, and the words that tell it."""

    setting: Setting
    rows: DraftRows
    members: list[Row]
    log: list[str] = field(factory=list)
    drafted: int = 0
    kept: int = 0
    stopped: bool = False
    _checkpoints: list[tuple[DraftCheckpoint, dict[str, Any]]] = field(factory=list)

    @classmethod
    def begin(cls, setting: Setting, prompts: Sequence[Sequence[int]]) -> Batch:
        """Open the rows; all but the last token of each prompt is prefilled."""
        log = [f"with the prompts {[list(prompt) for prompt in prompts]}"]
        size = sum(map(len, prompts))

        def told(said: str) -> Breach:
            return Breach(f"{log[0]} the drafter {said}", size)

        with blamed(told, "open()"):
            members = [Row(list(prompt), setting.open([None])) for prompt in prompts]
            batch = cls(setting, setting.open([None] * len(prompts)), members, log)
        batch.check_rows()
        behind = [list(prompt[:-1]) for prompt in prompts]
        if behind[0]:
            with blamed(batch.breach, "prefill()"):
                batch.rows.prefill(mx.array(behind), batch.context(behind))
                for row, ids in zip(members, behind, strict=True):
                    row.alone.prefill(mx.array([ids]), batch.context([ids]))
        return batch

    def breach(self, said: str) -> Breach:
        """A breach in the words of this story."""
        size = sum(len(row.tokens) for row in self.members) + 2 * len(self.log)
        return Breach(f"{', then '.join(self.log)}, the drafter {said}", size)

    def context(
        self, sessions: Sequence[Sequence[int]], starts: Sequence[int] | None = None
    ) -> mx.array | None:
        """The auxiliary states of sessions from their starts on."""
        return self.setting.aux_states.of(sessions, starts or [0] * len(sessions))

    # --- what the loop does -------------------------------------------------------------

    def round(
        self, depth: int, accepted: Sequence[int], fresh: Sequence[int], out: Sequence[bool] = ()
    ) -> list[list[int]]:
        """Draft, keep ``accepted[b]`` of each row's drafts, then a fresh token each.

        Rows that are ``out`` sit it out.

        :returns: the drafts; where all are empty, nothing entered.
        """
        out = out or [False] * len(self.members)
        together = self._draft(self.rows, self.members, depth, out)
        for at, (row, mine) in enumerate(zip(self.members, together, strict=True)):
            if out[at]:
                continue
            (single,) = self._draft(row.alone, [row], depth, [False])
            if single != mine:
                twin = "never stopped" if self.stopped else "alone"
                raise self.breach(
                    f"drafted {mine} in row {at} of {len(self.members)}, and {single} for the same"
                    f" row {twin}"
                )
            self._check_told(row, at, mine, depth)
        self.drafted += sum(map(bool, together))
        if not any(together):
            self.log.append("a draft of nothing")
            return together
        kept = [min(n, len(ids)) for n, ids in zip(accepted, together, strict=True)]
        self.kept += sum(kept)
        entered = [
            [] if sits else [*ids[:n], new]
            for ids, n, new, sits in zip(together, kept, fresh, out, strict=True)
        ]
        sitting = [at for at, sits in enumerate(out) if sits]
        without = f", without rows {sitting}" if sitting else ""
        self.log.append(f"a round at depth {depth} that kept {kept} drafts{without}")
        windows = [[*row.tokens, *ids] for row, ids in zip(self.members, together, strict=True)]
        starts = [len(row.tokens) - 1 for row in self.members]
        with blamed(self.breach, "commit()"):
            self.rows.commit(entered, self.context(windows, starts))
        for row, ids, new in zip(self.members, together, entered, strict=True):
            if new:
                self._commit_alone(row, ids, new)
        for row, ids, new in zip(self.members, together, entered, strict=True):
            row.tokens += new
            row.drafted |= bool(ids)
            row.told |= bool(new) and not ids
        self.check_rows()
        return together

    def consume(self, fresh: Sequence[Sequence[int]]) -> None:
        """Others chose tokens: the pending one of a row enters with all but its newest."""
        counts = [len(new) for new in fresh]
        if not any(counts):
            return
        self.log.append(f"{counts} tokens that others chose")
        whole = [[*row.tokens, *new] for row, new in zip(self.members, fresh, strict=True)]
        starts = [len(row.tokens) - 1 for row in self.members]
        ids = [w[s : s + n] for w, s, n in zip(whole, starts, counts, strict=True)]
        padded = [[*each, *[0] * (max(counts) - len(each))] for each in ids]
        ends = [w[: s + n] for w, s, n in zip(whole, starts, counts, strict=True)]
        with blamed(self.breach, "consume()"):
            self.rows.consume(mx.array(padded), counts, self.context(ends, starts))
            for row, own, end, start in zip(self.members, ids, ends, starts, strict=True):
                if own:
                    row.alone.consume(mx.array([own]), [len(own)], self.context([end], [start]))
        for row, new in zip(self.members, fresh, strict=True):
            row.tokens += new
            row.told |= bool(new)
        self.check_rows()

    def go_on(self, depth: int, token: int) -> list[int]:
        """A round of the only row whose drafts are all refused, or no round where it has none.

        :returns: the drafts; nothing entered where there are none and it can be told nothing.
        """
        (drafts,) = self.round(depth, [0], [token])
        if not drafts and self.setting.provider.supports_external_tokens:
            self.consume([[token]])
        return drafts

    def keep(self, rows: Sequence[int]) -> None:
        """Rows leave or change places."""
        self.log.append(f"rows {list(rows)} kept")
        with blamed(self.breach, "keep()"):
            self.rows.keep(list(rows))
        self.members = [self.members[at] for at in rows]
        self.check_rows()

    def join(self, prompt: Sequence[int]) -> None:
        """A session that began elsewhere joins by its checkpoint."""
        self.log.append(f"a row joining with the prompt {list(prompt)}")
        other = Batch.begin(self.setting, [prompt])
        checkpoint = other.capture(0)
        with blamed(self.breach, "append()"):
            self.rows.append([self.setting.sampling], [checkpoint])
        self.members.append(other.members[0])
        self.check_rows()

    def restore(self) -> None:
        """Every row stops and goes on from its stored checkpoint; the twins never stop."""
        self.log.append("all rows restored from their checkpoints")
        self.stopped = True
        checkpoints = [stored(self.capture(at)) for at in range(len(self.members))]
        with blamed(self.breach, "open()"):
            self.rows.close()
            self.rows = self.setting.open(checkpoints)
        self.check_rows()

    def capture(self, at: int) -> DraftCheckpoint:
        """A row's checkpoint, checked now and looked at again in the end."""

        def told(said: str) -> Breach:
            return self.breach(f"{said} (row {at} of {len(self.members)})")

        with blamed(self.breach, "capture()"):
            checkpoint = self.rows.capture(at)
        processed = len(self.members[at].tokens) - 1
        check_checkpoint(checkpoint, processed, told)
        self._checkpoints.append((checkpoint, snapshot(checkpoint)))
        return checkpoint

    def end(self) -> None:
        """Checkpoints are still what they were; everything closes."""
        for checkpoint, before in self._checkpoints:
            if snapshot(checkpoint) != before:
                raise self.breach("changed a checkpoint after capture(): it must own its arrays")
        with blamed(self.breach, "close()"):
            for rows in (self.rows, *(row.alone for row in self.members)):
                rows.close()

    # --- checks ----------------------------------------------------------------------------

    def check_rows(self) -> None:
        """The number of rows is what it should be."""
        with blamed(self.breach, "row_count"):
            count = self.rows.row_count
        if type(count) is not int or count != len(self.members):
            raise self.breach(f"has {short(count)} rows, not {len(self.members)}")

    def _check_told(self, row: Row, at: int, drafts: list[int], depth: int) -> None:
        """A row that was told tokens drafts what another one does whose prompt they were."""
        if not row.told or row.drafted:
            return
        with blamed(self.breach, "open()"):
            other = self.setting.open([None])
        behind = row.tokens[:-1]
        with blamed(self.breach, "prefill()"):
            other.prefill(mx.array([behind]), self.context([behind]))
        (due,) = self._draft(other, [row], depth, [False])
        with blamed(self.breach, "close()"):
            other.close()
        if due != drafts:
            raise self.breach(
                f"drafted {drafts} in row {at} of {len(self.members)}, and {due} where the same"
                " tokens were the prompt: those that others chose must enter by consume(), as it"
                " serves external tokens"
            )

    def _commit_alone(self, row: Row, drafts: list[int], entered: list[int]) -> None:
        """The same for the twin, told as an engine tells a single row."""
        start = len(row.tokens) - 1
        if drafts or not self.setting.provider.supports_external_tokens:
            # the states of what was kept
            window = [*row.tokens, *entered[:-1]]
            with blamed(self.breach, "commit()"):
                row.alone.commit([entered], self.context([window], [start]))
        else:
            pending = mx.array([row.tokens[-1:]])
            with blamed(self.breach, "consume()"):
                row.alone.consume(pending, [1], self.context([row.tokens], [start]))

    def _draft(
        self, rows: DraftRows, members: Sequence[Row], depth: int, out: Sequence[bool]
    ) -> list[list[int]]:
        pending = [None if sits else row.tokens[-1] for row, sits in zip(members, out, strict=True)]
        with blamed(self.breach, "draft()"):
            answer = rows.draft(pending, depth, [len(row.tokens) for row in members])
            read = self._read(answer, len(members))
            drafts = [[] if sits else ids for ids, sits in zip(read, out, strict=True)]
        for at, ids in enumerate(drafts):
            self._check_ids(ids, at, depth)
        return drafts

    def _read(self, answer: Any, count: int) -> list[list[int]]:  # noqa: ANN401
        if isinstance(answer, mx.array):
            if answer.ndim != 2 or answer.shape[0] != count:  # noqa: PLR2004
                raise self.breach(
                    f"drafted an array of shape {answer.shape} for {count} rows, not [rows, ids]"
                )
            if not mx.issubdtype(answer.dtype, mx.integer):
                raise self.breach(f"drafted an array of {answer.dtype}, not of ids")
            listed: Any = answer.tolist()
            return list(listed)
        if not isinstance(answer, list | tuple) or len(answer) != count:
            raise self.breach(f"drafted {short(answer)} for {count} rows: a list for each is due")
        if wrong := [ids for ids in answer if not isinstance(ids, list | tuple)]:
            raise self.breach(f"drafted {short(wrong[0])} for a row, not a list of ids")
        return [list(ids) for ids in answer]

    def _check_ids(self, ids: list[int], at: int, depth: int) -> None:
        if len(ids) > depth:
            raise self.breach(f"drafted {len(ids)} ids in row {at} when asked for {depth}")
        size = self.setting.target.vocab_size
        for token in ids:
            if type(token) is not int:
                raise self.breach(f"drafted {short(token)} in row {at}, not an int")
            if not 0 <= token < size:
                raise self.breach(f"drafted id {token}, outside the vocabulary of {size}")
