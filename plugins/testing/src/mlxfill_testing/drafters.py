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
    any drafts.  ``tap_layers``: target layers whose outputs are asked for and kept.
    ``opened``: the rows of each request.
    """

    script: Script
    on_device: bool = False
    chance: float = 1.0
    tap_layers: tuple[int, ...] = ()
    prefill_mode: Literal["tail-split", "full"] = "tail-split"
    default_depth: int = 4
    id: str = "scripted"
    weights_bytes: int = 0
    supports_target_adapters: bool = True
    supports_external_tokens: bool = True
    draft_vocabulary: tuple[int, ...] | None = None
    opened: list[ScriptedRows] = field(factory=list)
    closed: bool = False

    def open(
        self,
        target: TargetView,
        sampling: DraftSampling,  # noqa: ARG002 - a script needs no sampling
        checkpoints: Sequence[DraftCheckpoint | None],
    ) -> ScriptedRows:
        """One row, new or as it was captured.

        :raises DrafterError: it shall be several, or the checkpoint is another drafter's.
        """
        if len(checkpoints) != 1:
            message = f"a scripted drafter has one row, not {len(checkpoints)}"
            raise DrafterError(message)
        rows = ScriptedRows(self, target)
        if checkpoints[0] is not None:
            rows.restore(checkpoints[0])
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


class ScriptedRows:
    """One row.  Raises ``AssertionError`` when it is asked out of step with what it was told.

    ``known``: the tokens before the pending one, as this row was told of them.  ``taps``: what
    came with them, ``[1, len(known), n*H]`` in pieces.
    """

    def __init__(self, provider: ScriptedDrafter, target: TargetView) -> None:
        self.provider, self.target = provider, target
        self.namespace = "scripted"
        self.tap_layers = provider.tap_layers
        self.prefill_mode = provider.prefill_mode
        self.known: list[int] = []
        self.taps: list[mx.array] = []
        self.rounds: list[list[int]] = []
        self.closed = False
        self._pending: int | None = None

    @property
    def row_count(self) -> int:
        """Always one."""
        return 1

    def prefill(self, tokens: mx.array, context: mx.array | None = None) -> None:
        """Take ``[1, L]`` prompt tokens and their taps."""
        self._take(_row(tokens), context)

    def draft(
        self, pending: Sequence[int], depth: int, positions: Sequence[int]
    ) -> list[list[int]] | mx.array:
        """Up to ``depth`` ids of the script."""
        import mlx.core as mx

        _expect(list(positions) == [len(self.known) + 1], f"position {positions} is out of step")
        script, chance = self.provider.script, self.provider.chance
        (self._pending,) = pending
        wanted = script.random.randint(1, depth) if script.random.random() < chance else 0
        ids = script.guess(positions[0], wanted)
        self.rounds.append(ids)
        return mx.array([ids], mx.uint32) if self.provider.on_device and ids else [ids]

    def commit(self, accepted: Sequence[Sequence[int]], context: mx.array | None = None) -> None:
        """The pending token and all but the newest of ``accepted`` are behind this row now."""
        (entered,) = accepted
        pending, self._pending = self._pending, None
        _expect(pending is not None, "a round ended that never began")
        self._take([pending, *entered[:-1]] if pending is not None else [], context)

    def consume(
        self, tokens: mx.array, lengths: Sequence[int], context: mx.array | None = None
    ) -> None:
        """Take ``[1, L]`` tokens that others chose."""
        (length,) = lengths
        self._take(_row(tokens)[:length], context)

    def append(self, checkpoints: Sequence[DraftCheckpoint | None]) -> None:
        """Not with one row."""
        raise NotImplementedError

    def keep(self, rows: Sequence[int]) -> None:
        """Not with one row."""
        raise NotImplementedError

    def capture(self, row: int) -> DraftCheckpoint:
        """What the row was told: ``known`` ``[L]`` int32, and ``taps`` ``[1, L, n*H]``."""
        import mlx.core as mx

        _expect(row == 0, f"there is no row {row}")
        tensors = {"known": mx.array(self.known, mx.int32)}
        if self.taps:
            tensors["taps"] = mx.concatenate(self.taps, axis=1)
        return DraftCheckpoint(self.namespace, len(self.known), tensors)

    def restore(self, checkpoint: DraftCheckpoint) -> None:
        """Know what a captured row knew.  Raises ``DrafterError`` for that of another drafter."""
        if checkpoint.namespace != self.namespace:
            message = f"a checkpoint of {checkpoint.namespace!r} is none of {self.namespace!r}"
            raise DrafterError(message)
        self.known = list(_row(checkpoint.tensors["known"][None]))
        self.taps = [checkpoint.tensors["taps"]] if "taps" in checkpoint.tensors else []

    def close(self) -> None:
        """Note it."""
        self.closed = True

    def _take(self, ids: list[int], context: mx.array | None) -> None:
        if context is None:
            _expect(not self.tap_layers, "no taps came with the tokens")
        else:
            _expect(context.shape[1] == len(ids), f"{len(ids)} tokens, taps {context.shape}")
            self.taps.append(context)
        self.known.extend(ids)


def _row(tokens: mx.array) -> list[int]:
    """The ids of ``[1, L]`` tokens."""
    rows: Any = tokens.tolist()
    return list(rows[0])


def _expect(condition: bool, message: str) -> None:
    if not condition:
        raise AssertionError(message)
