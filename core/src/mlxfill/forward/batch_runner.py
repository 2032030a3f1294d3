"""Forwards of the target for several requests together: one row each."""

from __future__ import annotations

import time
from contextlib import nullcontext
from typing import TYPE_CHECKING

import mlx.core as mx

from mlxfill.forward.runner import VerifyResult, Window, read_drafts
from mlxfill.model.reading import ids as ids_of
from mlxfill.model.reading import row
from mlxfill.rows.caches import RowCaches

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from mlxfill.forward.runner import TargetRunner
    from mlxfill.model.hooks import LayerTrace
    from mlxfill.model.reading import Stream
    from mlxfill.model.target import Target

PAD = 0
"""Fills the window of a row that has less to say; whatever it is, it is taken back."""


class BatchRunner:
    """One target, one batch of caches; ``rows`` are the requests' own forwarders.

    A request's forwarder keeps its chooser, its processors and its count of held tokens; only
    its caches lie here.  ``failures``: rows whose processors or sampler raised; the others go on.
    """

    phases = None
    """A request whose time is told by phases shares no forwards."""

    def __init__(self, target: Target, stream: Stream) -> None:
        """No rows yet."""
        self.target, self.stream = target, stream
        self.caches = RowCaches()
        self.rows: list[TargetRunner] = []
        self.build_s = 0.0
        self.failures: dict[TargetRunner, Exception] = {}

    def join(self, forwarders: Sequence[TargetRunner]) -> None:
        """Requests join with their caches, which are given up."""
        with mx.stream(self.stream):
            self.caches.join(
                [each.caches for each in forwarders], [each.held for each in forwarders]
            )
            mx.eval([entry.state for entry in self.caches.entries])
        for forwarder in forwarders:
            forwarder.caches.clear()
        self.rows += forwarders

    def leave(self, rows: Sequence[int], *, with_caches: Sequence[int] = ()) -> None:
        """Requests leave; those in ``with_caches`` take their caches along."""
        with mx.stream(self.stream):
            for at in with_caches:
                forwarder = self.rows[at]
                forwarder.caches[:] = self.caches.extract(at)
                mx.eval([entry.state for entry in forwarder.caches])
            stay = [at for at in range(len(self.rows)) if at not in rows]
            self.caches.keep(stay)
        self.rows = [self.rows[at] for at in stay]

    # --- one token a row ----------------------------------------------------------------------

    def step(
        self, pending: mx.array, histories: Sequence[Sequence[int]], unread: int
    ) -> tuple[mx.array, mx.array | Sequence[mx.array]]:
        """Dispatch the forward of ``[B]`` ids: ``[B]`` choices and ``[B, V]`` log-probabilities.

        ``histories``: the histories as far as the host knows them, ``unread`` tokens short.
        """
        started = time.perf_counter()
        self.rows[0].adapt()
        with mx.stream(self.stream):
            with self._taping(self._aux_states_wanted()) as tape:
                logits = self.target.forward(pending[:, None], self.caches.entries)[:, -1]
            self._take_aux_states(tape, [1] * len(self.rows))
            positions = [len(history) + unread for history in histories]
            logits = self._processed(logits, pending, histories, positions)
            logprobs = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
            chosen = self._choose(logprobs, list(range(len(self.rows))), positions)
            self.build_s = time.perf_counter() - started
            mx.async_eval(chosen, logprobs)
        self.caches.settle([1] * len(self.rows))
        self._count([1] * len(self.rows))
        return chosen, logprobs

    def _processed(
        self,
        logits: mx.array,
        pending: mx.array,
        histories: Sequence[Sequence[int]],
        positions: Sequence[int],
    ) -> mx.array:
        if not any(forwarder.processors for forwarder in self.rows):
            return logits
        done = []
        for at, forwarder in enumerate(self.rows):
            each = logits[at : at + 1]
            if forwarder.processors:
                try:
                    seen = forwarder.shown(histories[at], pending[at : at + 1], positions[at])
                    each = forwarder.processed(seen, each)
                except Exception as error:  # noqa: BLE001 - a processor may raise anything
                    self.failures[forwarder] = error
            done.append(each)
        return mx.concatenate(done)

    # --- windows ------------------------------------------------------------------------------

    def verify(
        self, windows: Sequence[Window], histories: Sequence[Sequence[int]]
    ) -> list[VerifyResult]:
        """One window a row, all in one forward: what the target says to each.

        ``histories``: all tokens of each row, the known ids of its window included.
        """
        size = self.caches.window_size(max(window.size for window in windows))
        self.rows[0].adapt()
        with mx.stream(self.stream):
            ids = mx.stack([_padded(window, size) for window in windows])
            self.caches.begin()
            with self._taping(self.caches.needs_tape or self._aux_states_wanted()) as tape:
                logits, spans = self._logits(ids, windows)
            judged = self._judged(logits, spans, windows, histories)
            counts = [
                len(window.known) + each.accepted
                for window, each in zip(windows, judged, strict=True)
            ]
            self.rows[0].adapt()
            self.caches.settle(counts, size, tape)
            if self.caches.needs_tape:
                mx.async_eval([entry.state for entry in self.caches.entries])
        self._take_aux_states(tape, counts)
        self._count(counts)
        return judged

    def _logits(
        self, ids: mx.array, windows: Sequence[Window]
    ) -> tuple[mx.array, list[tuple[int, int]]]:
        """Logits ``[n, V]`` of the positions that matter, and where each row's begin and end."""
        count, size = ids.shape
        wanted: list[int] = []
        spans = []
        for at, window in enumerate(windows):
            first = 0 if window.want_known else len(window.known) - 1
            spans.append((len(wanted), len(wanted) + window.size - first))
            wanted += range(at * size + first, at * size + window.size)
        index = None if len(wanted) == count * size else mx.array(wanted)
        if index is None or not self.target.split:
            logits = self.target.forward(ids, self.caches.entries).reshape(count * size, -1)
            return (logits if index is None else logits[index]), spans
        hidden = self.target.hidden(ids, self.caches.entries)
        hidden = hidden.reshape(1, count * size, -1)[:, index]
        return self.target.project(hidden)[0], spans

    def _judged(
        self,
        logits: mx.array,
        spans: Sequence[tuple[int, int]],
        windows: Sequence[Window],
        histories: Sequence[Sequence[int]],
    ) -> list[VerifyResult]:
        """Sample all rows' positions at once, read drafts and samples together, compare."""
        together = [at for at, forwarder in enumerate(self.rows) if not forwarder.one_by_one]
        out: dict[int, VerifyResult] = {}
        parts: list[mx.array] = []
        owners: list[int] = []
        positions: list[int] = []
        for at in together:
            first, last = spans[at]
            first = last - 1 - len(windows[at].drafts)
            start = len(histories[at])
            parts.append(logits[first:last])
            owners += [at] * (last - first)
            positions += range(start, start + last - first)
        if together:
            judged = mx.concatenate(parts)
            logprobs = judged - mx.logsumexp(judged, axis=-1, keepdims=True)
            out = self._compared(logprobs, owners, positions, together, windows)
        for at, forwarder in enumerate(self.rows):
            first, last = spans[at]
            try:
                self._one_by_one(at, logits[first:last], windows[at], histories[at], out)
            except Exception as error:  # noqa: BLE001 - a processor may raise anything
                self.failures[forwarder] = error
                out[at] = VerifyResult([PAD], 0, [])
        return [out[at] for at in range(len(self.rows))]

    def _one_by_one(
        self,
        at: int,
        logits: mx.array,
        window: Window,
        session: Sequence[int],
        out: dict[int, VerifyResult],
    ) -> None:
        """What can only be done for one row, and in the order of its positions."""
        forwarder, rows = self.rows[at], []
        first_draft = logits.shape[0] - 1 - len(window.drafts)
        if window.want_known:
            before = len(session) - len(window.known)
            rows = forwarder.known_rows(logits[:first_draft], before, session)
        if at not in out:
            out[at] = forwarder.walk(
                logits[first_draft:], read_drafts(window.drafts), list(session)
            )
        out[at].known_logprobs = rows

    def _compared(
        self,
        logprobs: mx.array,
        owners: Sequence[int],
        positions: Sequence[int],
        together: Sequence[int],
        windows: Sequence[Window],
    ) -> dict[int, VerifyResult]:
        sampled = self._choose(logprobs, owners, positions).astype(mx.int32)
        lazy = [at for at in together if isinstance(windows[at].drafts, mx.array)]
        drafts = [_on_device(windows[at].drafts) for at in lazy]
        read = ids_of(mx.concatenate([sampled, *drafts]))
        chosen, rest = read[: len(owners)], read[len(owners) :]
        out = {}
        done = 0
        for at in together:
            window = windows[at]
            size = len(window.drafts)
            if at in lazy:
                values, rest = rest[:size], rest[size:]
            else:
                values = read_drafts(window.drafts)
            mine = chosen[done : done + size + 1]
            accepted = self.rows[at].agreed(mine, values)
            rows = logprobs[done : done + size + 1]
            out[at] = VerifyResult(mine[: accepted + 1], accepted, rows, values)
            done += size + 1
        return out

    def _choose(
        self, logprobs: mx.array, owners: Sequence[int], positions: Sequence[int]
    ) -> mx.array:
        """``[n]`` choices; ``owners[i]`` is the row that position i belongs to."""
        choosers = [self.rows[at].chooser for at in owners]
        if all(chooser.greedy for chooser in choosers):
            return mx.argmax(logprobs, axis=-1)
        parts, first = [], 0
        for at in range(1, len(owners) + 1):
            if at == len(owners) or owners[at] != owners[first]:
                parts.append(self._chosen(owners[first], logprobs[first:at], positions[first:at]))
                first = at
        return mx.concatenate(parts)

    def _chosen(self, at: int, logprobs: mx.array, positions: Sequence[int]) -> mx.array:
        try:
            chosen = self.rows[at].chooser.choose(logprobs, positions)
        except Exception as error:  # noqa: BLE001 - a caller's sampler may raise anything
            self.failures[self.rows[at]] = error
            chosen = mx.argmax(logprobs, axis=-1)
        return chosen.astype(mx.int32)

    # --- pieces -------------------------------------------------------------------------------

    def _aux_states_wanted(self) -> bool:
        return any(forwarder.aux_layers for forwarder in self.rows)

    def _taping(self, wanted: bool) -> AbstractContextManager[LayerTrace | None]:
        return self.target.taping() if wanted else nullcontext()

    def _take_aux_states(self, tape: LayerTrace | None, counts: Sequence[int]) -> None:
        """Hand each row the auxiliary hidden states of its kept ids."""
        for at, forwarder in enumerate(self.rows):
            if tape is not None and forwarder.aux_layers:
                aux_states = self.target.aux_states(tape, forwarder.aux_layers)
                forwarder.last_aux_states = aux_states[at : at + 1, : counts[at]]

    def _count(self, counts: Sequence[int]) -> None:
        for forwarder, count in zip(self.rows, counts, strict=True):
            forwarder.held += count
            forwarder.forwards += 1


def _padded(window: Window, size: int) -> mx.array:
    """``[size]`` ids."""
    parts = [row(window.known)]
    if isinstance(window.drafts, mx.array):
        parts.append(window.drafts.astype(mx.int32))
        missing = size - window.size
        parts += [row([PAD] * missing)] if missing else []
    else:
        parts = [row([*window.known, *window.drafts, *[PAD] * (size - window.size)])]
    return mx.concatenate(parts) if len(parts) > 1 else parts[0]


def _on_device(drafts: Sequence[int] | mx.array) -> mx.array:
    return drafts.astype(mx.int32) if isinstance(drafts, mx.array) else row(drafts)
