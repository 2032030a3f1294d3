"""The same guesses as a drafter: rows of one batch, and their checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, cast

from mlxfill import DraftCheckpoint, DrafterError, DraftSampling, TargetView

if TYPE_CHECKING:
    import mlx.core as mx

    from mlxfill_spec_ngram.guesser import Guesser

_IDS = "ids"
"""Name of the one tensor of a checkpoint: the row's history, ``[processed_tokens]`` int32."""


class NgramRows:
    """One guesser a row.  A row's history is what the target's caches hold, and while a round
    runs the pending id too.

    ``make_guesser`` makes an empty guesser; rows do not mind whether it looks up or knows a
    grammar.  Raises ``DrafterError`` for a checkpoint of another namespace or length.
    """

    tap_layers: tuple[int, ...] = ()
    prefill_mode: Literal["tail-split", "full"] = "tail-split"

    def __init__(
        self,
        namespace: str,
        make_guesser: Callable[[], Guesser],
        checkpoints: Sequence[DraftCheckpoint | None],
    ) -> None:
        self.namespace = namespace
        self._make_guesser = make_guesser
        self._rows: list[Guesser] = []
        self.append(checkpoints)

    @property
    def row_count(self) -> int:
        """Rows at present."""
        return len(self._rows)

    def prefill(self, tokens: mx.array, context: mx.array | None = None) -> None:  # noqa: ARG002
        """Add ``[B, L]`` prompt ids, all but the last prompt token."""
        for row, ids in zip(self._rows, _rows_of(tokens), strict=True):
            row.seed(ids)

    def draft(
        self,
        pending: Sequence[int],
        depth: int,
        positions: Sequence[int],  # noqa: ARG002 - guesses are not drawn
    ) -> list[list[int]]:
        """Guess 0 to ``depth`` ids a row after its pending id, which enters the history."""
        drafts = []
        for row, token in zip(self._rows, pending, strict=True):
            row.extend((token,))
            drafts.append(list(row.guess()[:depth]))
        return drafts

    def commit(
        self,
        accepted: Sequence[Sequence[int]],
        context: mx.array | None = None,  # noqa: ARG002 - no taps
    ) -> None:
        """Add the ids of a round but the last: it is pending, and comes with the next draft."""
        for row, ids in zip(self._rows, accepted, strict=True):
            row.extend(ids[:-1])

    def consume(
        self,
        tokens: mx.array,
        lengths: Sequence[int],
        context: mx.array | None = None,  # noqa: ARG002 - no taps
    ) -> None:
        """Add the first ``lengths[b]`` of ``[B, L]`` ids that entered the target's caches without
        a draft: the pending id first, the new pending id not yet.
        """
        for row, ids, length in zip(self._rows, _rows_of(tokens), lengths, strict=True):
            row.extend(ids[:length])

    def append(self, checkpoints: Sequence[DraftCheckpoint | None]) -> None:
        """Rows join at the end: restored ones, and an empty one for each None."""
        self._rows += [self._restored(checkpoint) for checkpoint in checkpoints]

    def keep(self, rows: Sequence[int]) -> None:
        """Only these rows remain, in this order."""
        self._rows = [self._rows[row] for row in rows]

    def capture(self, row: int) -> DraftCheckpoint:
        """The row's history."""
        import mlx.core as mx

        history = self._rows[row].history
        ids = mx.array(list(history), dtype=mx.int32)
        return DraftCheckpoint(self.namespace, len(history), {_IDS: ids})

    def close(self) -> None:
        """Release the histories."""
        self._rows = []

    def _restored(self, checkpoint: DraftCheckpoint | None) -> Guesser:
        guesser = self._make_guesser()
        if checkpoint is not None:
            guesser.seed(self._ids_of(checkpoint))
        return guesser

    def _ids_of(self, checkpoint: DraftCheckpoint) -> list[int]:
        if checkpoint.namespace != self.namespace:
            raise DrafterError(
                f"the checkpoint is of drafter {checkpoint.namespace!r}, this one is"
                f" {self.namespace!r}: mount the drafter that made it"
            )
        ids = checkpoint.tensors.get(_IDS)
        found = 0 if ids is None else ids.size
        if ids is None or found != checkpoint.processed_tokens:
            raise DrafterError(
                f"the checkpoint of drafter {self.namespace!r} holds {found} ids for"
                f" {checkpoint.processed_tokens} processed tokens: make it anew"
            )
        return cast("list[int]", ids.tolist())


def _rows_of(tokens: mx.array) -> list[list[int]]:
    return cast("list[list[int]]", tokens.tolist())


class NgramProvider:
    """Opens rows.  It has no weights, so any target and any adapter will do."""

    id = "ngram"
    weights_bytes = 0
    supports_target_adapters = True
    supports_external_tokens = True
    draft_vocabulary: tuple[int, ...] | None = None

    def __init__(
        self, namespace: str, make_guesser: Callable[[], Guesser], default_depth: int
    ) -> None:
        self.default_depth = default_depth
        self._namespace = namespace
        self._make_guesser = make_guesser

    def open(
        self,
        target: TargetView,  # noqa: ARG002 - any target
        sampling: DraftSampling,  # noqa: ARG002 - guesses are not drawn
        checkpoints: Sequence[DraftCheckpoint | None],
    ) -> NgramRows:
        """Rows for one batch; a None checkpoint is an empty row."""
        return NgramRows(self._namespace, self._make_guesser, checkpoints)

    def close(self) -> None:
        """Nothing to release."""
