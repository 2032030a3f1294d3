"""A known text through the target, token by token: what the model itself would have chosen."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mlx.core as mx
from attrs import frozen

from mlxfill.errors import InputError
from mlxfill.forward.runner import Window
from mlxfill.model.reading import one_float, one_id, row

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence

    from mlxfill.forward.runner import TargetRunner

SIZES = (2, 4, 8, 16, 32)
"""Windows in turn, as different as those of a run: which kernel computes depends on the size."""


@frozen
class Choice:
    """The model's own choice at one position, given the text before it.

    ``margin``: by how much it leads over the second; ``behind``: how much the ids asked about are
    behind it.  Both in units of the scores that decide (logits; divided by the temperature, with
    the draw added, when sampling); infinite where nothing else was possible, None where a
    foreign sampler or XTC decided.
    """

    token: int
    margin: float | None
    behind: Mapping[int, float | None]


class Replay:
    """Follows ``tokens`` after a prompt with two fresh forwarders.

    ``plain`` decodes step by step, as plain decoding would; ``windowed`` forwards the same tokens
    several at a time.  What differs between the two is the noise of this model, device and
    precision: ``noise`` is the most by which the distance of two logits has moved.
    """

    def __init__(
        self,
        make: Callable[[], TargetRunner],
        prompt: Sequence[int],
        tokens: Sequence[int],
        embeddings: mx.array | None = None,
    ) -> None:
        """``make`` gives a forwarder whose caches hold a beginning of the prompt, or nothing."""
        self.plain, self.windowed = make(), make()
        self.noise = 0.0
        self._prompt, self._tokens = list(prompt), list(tokens)
        self._flight: tuple[mx.array, mx.array] | None = None
        self._embeddings = embeddings
        temperature = self.plain.chooser.sampling.temperature
        self._unit = 1.0 if self.plain.chooser.greedy or not temperature else 1.0 / temperature

    def prefilling(self) -> Iterator[None]:
        """Both read the prompt; a step for each layer of each chunk."""
        self._flight = yield from self._prefill(self.plain)
        yield from self._prefill(self.windowed)

    def choices(self, asked: Sequence[Collection[int]]) -> Iterator[Choice]:
        """One choice before each token, and one after the last; the prompt has been read.

        :param asked: for each position the ids whose distance is wanted.
        """
        prompt, tokens = self._prompt, self._tokens
        full = [*prompt, *tokens]
        flight, self._flight = self._flight, None
        assert flight is not None  # noqa: S101 - see above
        rows: list[mx.array] = []
        for at, ids in enumerate(asked):
            position = len(prompt) + at
            yield self._choice(*flight, position, ids)
            if at == len(tokens):
                break
            flight = self._step(self.plain, tokens[at : at + 1], full[: position + 1])
            rows.append(flight[1])
            if len(rows) == self._window() or at + 1 == len(tokens):
                self._compare(rows, full)
                rows.clear()

    def _prefill(self, forwarder: TargetRunner) -> Generator[None, None, tuple[mx.array, mx.array]]:
        prompt, embeddings = self._prompt, self._embeddings
        options, before, end = forwarder.options, forwarder.unnamed, len(prompt) - 1
        # Where a snapshot was taken a chunk ended: caches that are quantized then read otherwise.
        snapshot = before + (options.snapshot_at or 0)
        while (first := forwarder.held) < end:
            stops = (end, *((snapshot,) if snapshot > first else ()))
            last = min(first + options.prefill_step_size, *stops)
            part = None if embeddings is None else embeddings[None, first - before : last - before]
            yield from forwarder.prefill(prompt[first:last], part)
        tail = None if embeddings is None else embeddings[None, -1:]
        return self._step(forwarder, prompt[-1:], prompt, tail)

    @staticmethod
    def _step(
        forwarder: TargetRunner,
        pending: Sequence[int],
        history: Sequence[int],
        embeddings: mx.array | None = None,
    ) -> tuple[mx.array, mx.array]:
        chosen, (logprobs,) = forwarder.step(row(pending), [history], 0, embeddings)
        return chosen, logprobs

    def _window(self) -> int:
        forwarder = self.windowed
        room, size = forwarder.room(), SIZES[forwarder.forwards % len(SIZES)]
        return size if room is None else max(min(size, room), 1)

    def _compare(self, rows: list[mx.array], full: Sequence[int]) -> None:
        """The same tokens in one window: its rows beside those of the steps."""
        held = self.windowed.held
        known, upto = full[held : held + len(rows)], full[: held + len(rows)]
        (result,) = self.windowed.verify([Window(known, want_known=True)], [upto])
        for ours, theirs in zip(rows, [*result.known_logprobs, result.logprobs[0]], strict=True):
            self.noise = max(self.noise, self._unit * gap_moved(ours, theirs))

    def _choice(
        self, chosen: mx.array, logprobs: mx.array, position: int, ids: Collection[int]
    ) -> Choice:
        token = one_id(chosen)
        try:
            scores = self.plain.chooser.scores(logprobs[None], (position,))[0].astype(mx.float32)
        except InputError:
            return Choice(token, None, dict.fromkeys(ids))
        second = mx.topk(scores, 2).min()
        best = scores[token]
        behind = {other: one_float(best - scores[other]) for other in ids}
        return Choice(token, one_float(best - second), behind)


def gap_moved(ours: mx.array, theirs: mx.array) -> float:
    """Most by which the distance of two entries differs between two ``[V]`` rows of logits.

    Entries that a processor banned, minus infinity, are left out.
    """
    known = mx.isfinite(ours) & mx.isfinite(theirs)
    moved = ours.astype(mx.float32) - theirs.astype(mx.float32)
    high = mx.where(known, moved, -mx.inf).max()
    low = mx.where(known, moved, mx.inf).min()
    gap = one_float(high - low)
    return max(gap, 0.0)
