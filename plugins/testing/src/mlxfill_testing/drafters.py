"""A drafter that follows a script and keeps a record of what it was told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from attrs import define, field

from mlxfill import DraftCheckpoint, DrafterError, DraftKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    import mlx.core as mx

    from mlxfill import DraftSampling, TargetView
    from mlxfill_testing.script import Script


@define(kw_only=True)
class ScriptedDrafter:
    """A ``DraftProvider`` whose guesses come from ``script``.

    ``on_device``: answer an array instead of lists of ids.  ``chance``: how often a round gets
    any drafts.  ``aux_layers``: target layers whose outputs are asked for and kept.
    ``opened``: the rows of each request.
    """

    script: Script
    on_device: bool = False
    chance: float = 1.0
    aux_layers: tuple[int, ...] = ()
    prefill_mode: Literal["tail-split", "full"] = "tail-split"
    default_depth: int = 4
    id: str = "scripted"
    weights_bytes: int = 0
    supports_target_adapters: bool = True
    supports_external_tokens: bool = True
    opened: list[ScriptedRows] = field(factory=list)
    closed: bool = False

    def open(
        self,
        target: TargetView,
        samplings: Sequence[DraftSampling],
        checkpoints: Sequence[DraftCheckpoint | None],
    ) -> ScriptedRows:
        """Rows, new or as they were captured.

        :raises DrafterError: a checkpoint is another drafter's.
        """
        rows = ScriptedRows(self, target)
        rows.append(samplings, checkpoints)
        self.opened.append(rows)
        return rows

    def close(self) -> None:
        """Note it."""
        self.closed = True

    def kind(self, origin: str = "draft") -> DraftKind:
        """The kind of drafter under which a plugin offers this one."""
        return DraftKind(
            name="scripted",
            origin=origin,
            detect=lambda _folder: False,
            load=lambda _artifact, _target, _settings: self,
            needs_artifact=False,
        )


@define
class ScriptedRow:
    """One of them: the tokens before the pending one, as it was told of them.

    ``aux_states``: what came with them, ``[1, len(known), n*H]`` in pieces; ``rounds``: its drafts.
    """

    known: list[int] = field(factory=list)
    aux_states: list[mx.array] = field(factory=list)
    rounds: list[list[int]] = field(factory=list)
    pending: int | None = None

    def take(self, ids: list[int], aux_states: mx.array | None) -> None:
        """These are behind the row now."""
        if aux_states is not None and ids:
            _expect(
                aux_states.shape[1] >= len(ids), f"{len(ids)} tokens, aux_states {aux_states.shape}"
            )
            self.aux_states.append(aux_states[:, : len(ids)])
        self.known.extend(ids)


class ScriptedRows:
    """Raises ``AssertionError`` when it is asked out of step with what it was told.

    ``known``, ``aux_states`` and ``rounds`` are those of the first row.
    """

    def __init__(self, provider: ScriptedDrafter, target: TargetView) -> None:
        self.provider, self.target = provider, target
        self.namespace = "scripted"
        self.aux_layers = provider.aux_layers
        self.prefill_mode = provider.prefill_mode
        self.rows: list[ScriptedRow] = []
        self.closed = False

    @property
    def row_count(self) -> int:
        """Rows at present."""
        return len(self.rows)

    @property
    def known(self) -> list[int]:
        """Of the first row."""
        return self.rows[0].known

    @property
    def aux_states(self) -> list[mx.array]:
        """Of the first row."""
        return self.rows[0].aux_states

    @property
    def rounds(self) -> list[list[int]]:
        """Of the first row."""
        return self.rows[0].rounds

    def prefill(self, tokens: mx.array, context: mx.array | None = None) -> None:
        """Take ``[B, L]`` prompt tokens and their aux_states."""
        self._take(tokens, [tokens.shape[1]] * len(self.rows), context)

    def draft(
        self, pending: Sequence[int | None], depth: int, positions: Sequence[int]
    ) -> list[list[int]] | mx.array:
        """Up to ``depth`` ids of the script; an array where all rows draft as many."""
        import mlx.core as mx

        script, chance = self.provider.script, self.provider.chance
        drafts: list[list[int]] = []
        for row, last, position in zip(self.rows, pending, positions, strict=True):
            _expect(row.pending is None, "a round began before the last one ended")
            row.pending = last
            if last is None:
                drafts.append([])
                continue
            _expect(position == len(row.known) + 1, f"position {position} is out of step")
            wanted = script.random.randint(1, depth) if script.random.random() < chance else 0
            drafts.append(script.guess(position, wanted))
            row.rounds.append(drafts[-1])
            row.pending = last if drafts[-1] else None
        even = self.provider.on_device and len(set(map(len, drafts))) == 1 and drafts[0]
        return mx.array(drafts, mx.uint32) if even else drafts

    def commit(self, accepted: Sequence[Sequence[int]], context: mx.array | None = None) -> None:
        """The pending token and all but the newest of ``accepted`` are behind each row now."""
        self._expect_aux_states(context)
        for at, (row, entered) in enumerate(zip(self.rows, accepted, strict=True)):
            pending, row.pending = row.pending, None
            _expect((pending is None) == (not entered), "a round ended that never began")
            if pending is not None:
                row.take([pending, *entered[:-1]], _of(context, at))

    def consume(
        self, tokens: mx.array, lengths: Sequence[int], context: mx.array | None = None
    ) -> None:
        """Take ``[B, L]`` tokens that others chose."""
        self._take(tokens, lengths, context)

    def _take(self, tokens: mx.array, lengths: Sequence[int], context: mx.array | None) -> None:
        self._expect_aux_states(context)
        ids: Any = tokens.tolist()
        for at, (row, length) in enumerate(zip(self.rows, lengths, strict=True)):
            row.take(ids[at][:length], _of(context, at))

    def append(
        self,
        samplings: Sequence[DraftSampling],
        checkpoints: Sequence[DraftCheckpoint | None],
    ) -> None:
        """Rows join.  A script needs no sampling, but each has one."""
        _expect(len(samplings) == len(checkpoints), "rows and samplings differ in number")
        self.rows += [self._restored(checkpoint) for checkpoint in checkpoints]

    def keep(self, rows: Sequence[int]) -> None:
        """Only these rows remain."""
        self.rows = [self.rows[row] for row in rows]

    def capture(self, row: int) -> DraftCheckpoint:
        """What the row was told: ``known`` ``[L]`` int32, and ``aux_states`` ``[1, L, n*H]``."""
        import mlx.core as mx

        told = self.rows[row]
        tensors = {"known": mx.array(told.known, mx.int32)}
        if told.aux_states:
            tensors["aux_states"] = mx.concatenate(told.aux_states, axis=1)
        return DraftCheckpoint(self.namespace, len(told.known), tensors)

    def close(self) -> None:
        """Note it."""
        self.closed = True

    def _restored(self, checkpoint: DraftCheckpoint | None) -> ScriptedRow:
        """What a captured row knew.  Raises ``DrafterError`` for that of another drafter."""
        if checkpoint is None:
            return ScriptedRow()
        if checkpoint.namespace != self.namespace:
            message = f"a checkpoint of {checkpoint.namespace!r} is none of {self.namespace!r}"
            raise DrafterError(message)
        known: Any = checkpoint.tensors["known"].tolist()
        aux_states = (
            [checkpoint.tensors["aux_states"]] if "aux_states" in checkpoint.tensors else []
        )
        return ScriptedRow(list(known), aux_states)

    def _expect_aux_states(self, context: mx.array | None) -> None:
        _expect((context is None) == (not self.aux_layers), "no context came with the tokens")


def _of(context: mx.array | None, row: int) -> mx.array | None:
    """``[1, S, n*H]`` of one row."""
    return None if context is None else context[row : row + 1]


def _expect(condition: bool, message: str) -> None:
    if not condition:
        raise AssertionError(message)
