"""The same guesses as a drafter: rows of one batch, and their checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, cast

from attrs import define

from mlxfill import DraftCheckpoint, DrafterError, DraftSampling, TargetView

if TYPE_CHECKING:
    import mlx.core as mx

    from mlxfill_spec_ngram.guesser import Guesser

_PENDING, _STATE = "pending", "state"
_IDS = "ids"
"""Name of the one tensor of a checkpoint: the row's history, ``[processed_tokens]`` int32."""


class NgramRows:
    """One guesser a row.

    ``make_guesser`` makes an empty guesser; rows do not mind whether it looks up or knows a
    grammar.  Raises ``DrafterError`` for a checkpoint of another namespace or length.
    """

    aux_layers: tuple[int, ...] = ()
    prefill_mode: Literal["tail-split", "full"] = "tail-split"

    def __init__(
        self,
        namespace: str,
        make_guesser: Callable[[], Guesser],
        checkpoints: Sequence[DraftCheckpoint | None],
    ) -> None:
        self.namespace = namespace
        self._make_guesser = make_guesser
        self._rows = [self._restored(checkpoint) for checkpoint in checkpoints]

    @property
    def row_count(self) -> int:
        """Rows at present."""
        return len(self._rows)

    def prefill(self, tokens: mx.array, context: mx.array | None = None) -> None:  # noqa: ARG002
        """Add ``[B, L]`` prompt ids, all but the last prompt token."""
        for row, ids in zip(self._rows, _ids_of(tokens), strict=True):
            row.guesser.seed(ids)

    def draft(
        self,
        pending: Sequence[int | None],
        depth: int,
        positions: Sequence[int],  # noqa: ARG002 - guesses are not drawn
    ) -> list[list[int]]:
        """Guess 0 to ``depth`` ids a row after its pending id; none where that is None."""
        return [
            [] if token is None else row.draft(token)[:depth]
            for row, token in zip(self._rows, pending, strict=True)
        ]

    def commit(
        self,
        accepted: Sequence[Sequence[int]],
        context: mx.array | None = None,  # noqa: ARG002 - no aux layers
    ) -> None:
        """Add the ids of a round but the last: it is pending, and comes with the next draft."""
        for row, ids in zip(self._rows, accepted, strict=True):
            if ids:
                row.commit(ids)

    def consume(
        self,
        tokens: mx.array,
        lengths: Sequence[int],
        context: mx.array | None = None,  # noqa: ARG002 - no aux layers
    ) -> None:
        """Add the first ``lengths[b]`` of ``[B, L]`` ids that entered the target's caches without
        a draft: the pending id first, the new pending id not yet.
        """
        for row, ids, length in zip(self._rows, _ids_of(tokens), lengths, strict=True):
            row.consume(ids[:length])

    def append(
        self,
        samplings: Sequence[DraftSampling],  # noqa: ARG002 - guesses are not drawn
        checkpoints: Sequence[DraftCheckpoint | None],
    ) -> None:
        """Rows join at the end: restored ones, and an empty one for each None."""
        self._rows += [self._restored(checkpoint) for checkpoint in checkpoints]

    def keep(self, rows: Sequence[int]) -> None:
        """Only these rows remain, in this order."""
        self._rows = [self._rows[row] for row in rows]

    def capture(self, row: int) -> DraftCheckpoint:
        """The ids that the row has processed, all that the target's caches hold, and what its
        guesser remembers besides.
        """
        import mlx.core as mx

        ids = self._rows[row].processed()
        tensors = {_IDS: mx.array(ids, dtype=mx.int32)}
        return DraftCheckpoint(self.namespace, len(ids), tensors, self._rows[row].remembered())

    def close(self) -> None:
        """Release the histories."""
        self._rows = []

    def _restored(self, checkpoint: DraftCheckpoint | None) -> _Row:
        guesser = self._make_guesser()
        if checkpoint is None:
            return _Row(guesser)
        ids, pending, state = self._checked(checkpoint), *_memory(checkpoint)
        guesser.seed([*ids, *pending])
        try:
            guesser.resume(state)
        except ValueError as error:
            raise DrafterError(f"the checkpoint is broken: {error}; make it anew") from error
        return _Row(guesser, round_open=bool(pending))

    def _checked(self, checkpoint: DraftCheckpoint) -> list[int]:
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


@define
class _Row:
    """A guesser whose history is what the target's caches hold and, from a draft until the end of
    its round, the pending id.
    """

    guesser: Guesser
    round_open: bool = False

    def draft(self, pending: int) -> list[int]:
        if not self.round_open:
            self.guesser.extend((pending,))
            self.round_open = True
        return list(self.guesser.guess())

    def commit(self, accepted: Sequence[int]) -> None:
        self.guesser.extend(accepted[:-1])
        self.round_open = False

    def consume(self, ids: Sequence[int]) -> None:
        # An empty draft opens a round that nobody commits: its pending id is known already.
        self.guesser.extend(ids[1:] if self.round_open else ids)
        self.round_open = self.round_open and not ids

    def processed(self) -> list[int]:
        history = self.guesser.history
        return list(history[: len(history) - self.round_open])

    def remembered(self) -> dict[str, str]:
        """The pending id of an open round and the guesser's state, as words."""
        pending = self.guesser.history[-1:] if self.round_open else ()
        return {_PENDING: _words(pending), _STATE: _words(self.guesser.state)}


def _words(numbers: Sequence[int]) -> str:
    return " ".join(map(str, numbers))


def _memory(checkpoint: DraftCheckpoint) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Pending id and state of a checkpoint."""
    try:
        pending, state = (
            tuple(int(word) for word in checkpoint.metadata[key].split())
            for key in (_PENDING, _STATE)
        )
    except (KeyError, ValueError):
        pending, state = (), ()
        known = False
    else:
        known = len(pending) <= 1 and min(pending, default=0) >= 0
    if not known:
        raise DrafterError(
            f"the checkpoint of drafter {checkpoint.namespace!r} does not hold its state: make it"
            " anew"
        )
    return pending, state


def _ids_of(tokens: mx.array) -> list[list[int]]:
    return cast("list[list[int]]", tokens.tolist())


class NgramProvider:
    """Opens rows.  It has no weights, so any target and any adapter will do."""

    id = "ngram"
    weights_bytes = 0
    supports_target_adapters = True
    supports_external_tokens = True

    def __init__(
        self, namespace: str, make_guesser: Callable[[], Guesser], default_depth: int
    ) -> None:
        self.default_depth = default_depth
        self._namespace = namespace
        self._make_guesser = make_guesser

    def open(
        self,
        target: TargetView,  # noqa: ARG002 - any target
        samplings: Sequence[DraftSampling],  # noqa: ARG002 - guesses are not drawn
        checkpoints: Sequence[DraftCheckpoint | None],
    ) -> NgramRows:
        """Rows for one batch; a None checkpoint is an empty row."""
        return NgramRows(self._namespace, self._make_guesser, checkpoints)

    def close(self) -> None:
        """Nothing to release."""
