"""Whose prompt is read next, how much of it, and who else's in the same forward."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mlx.core as mx
from attrs import define

from mlxfill.rows.caches import layout
from mlxfill.rows.proof import Readings
from mlxfill.rows.reading import read_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mlxfill.engine.learnt import Learnt
    from mlxfill.engine.runstate import RunState
    from mlxfill.model.reading import Stream
    from mlxfill.model.target import Target

ROUND_TOKENS = 2048
"""Prompt tokens after which rows that decode get their next round."""
SHORT = 128
"""Tokens that are read in about the time of a step: whoever is ready waits for them."""
PADDING = 0.25
"""Share of a common forward that may be padding; beyond that prompts are read apart."""


@define(eq=False)
class Reader:
    """A run whose prompt is being read.  ``error``: what one of its callbacks raised."""

    run: RunState
    begun: bool = False
    error: Exception | None = None

    @property
    def over(self) -> bool:
        """Whether nothing more is to be read: all but the last token was, or the run has ended."""
        ended = self.error is not None or self.run.ending is not None
        return ended or not self.run.prefill.left

    def begin(self) -> None:
        """Begin, once."""
        if not self.begun:
            self.begun = True
            self._attempt(self.run.begin)

    def read(self) -> None:
        """Forward the next chunk alone."""
        self._attempt(self.run.prefill.read)

    def took(self, count: int) -> None:
        """``count`` tokens were forwarded among others."""
        self._attempt(lambda: self.run.prefill.took(count))

    def _attempt(self, act: Callable[[], None]) -> None:
        try:
            act()
        except Exception as error:  # noqa: BLE001 - a caller's callback may raise anything
            self.error = error
        self.run.heed_cancel()


class Readers:
    """Reads prompts, those of about the same length in one forward.

    The shortest rest comes first: it holds the others up least, and its run decodes while they
    read on; whoever is ready waits for others as long again at most.  The oldest is not passed for
    ever: its chunk is due when ``ROUND_TOKENS`` of others have been read since its last one.
    """

    def __init__(self, target: Target, learnt: Learnt, stream: Stream) -> None:
        """Nobody reads yet."""
        self._target, self._learnt, self._stream = target, learnt, stream
        self._readers: list[Reader] = []
        self._passed = 0

    def __len__(self) -> int:
        """Runs that read."""
        return len(self._readers)

    def add(self, run: RunState) -> None:
        """A run joins that has computed nothing."""
        self._readers.append(Reader(run))

    def drop(self, run: RunState) -> None:
        """A run leaves."""
        self._readers = [reader for reader in self._readers if reader.run is not run]

    def round(self) -> list[Reader]:
        """Read ``ROUND_TOKENS`` or one chunk; the readers that are over, which leave."""
        over: list[Reader] = []
        read = 0
        while self._readers:
            window = self._window()
            size = _area(window)
            waits = bool(over) and size > max(read, SHORT)
            if read and (waits or read + size > ROUND_TOKENS):
                break
            read += size
            self._passed = 0 if self._readers[0] in window else self._passed + size
            self._read(window)
            over += [reader for reader in window if reader.over]
            self._readers = [reader for reader in self._readers if reader not in over]
        return over

    # --- who -------------------------------------------------------------------------------

    def _window(self) -> list[Reader]:
        """Those who read next, together."""
        readers, oldest = self._readers, self._readers[0]
        due = self._passed >= ROUND_TOKENS
        first = oldest if due else min(readers, key=lambda each: each.run.prefill.left)
        window, ahead = [first], first.run.prefill.ahead
        kind = self._kind(first.run) if ahead and len(readers) > 1 else None
        if kind is None:
            return window
        for other in sorted(readers, key=lambda each: abs(each.run.prefill.ahead - ahead)):
            alike = other is not first and self._kind(other.run) == kind
            if alike and self._fit([*window, other]):
                window.append(other)
        return window

    def _fit(self, window: Sequence[Reader]) -> bool:
        """Whether these chunks are worth a common forward, and no larger than one chunk may be."""
        area, steps = _area(window), [each.run.options.prefill_step_size for each in window]
        padding = area - sum(each.run.prefill.ahead for each in window)
        most = 0.0 if self._learnt.readings() is Readings.EVEN else PADDING * area
        return area <= min(ROUND_TOKENS, *steps) and padding <= most

    def _kind(self, run: RunState) -> object | None:
        """What runs must have in common to read together; None: this one reads alone."""
        options, forwarder = run.options, run.forwarder
        if run.alone or options.kv_bits is not None or run.prefill.scores is not None:
            return None
        key = layout(forwarder.caches)
        if key is None or self._learnt.readings() is Readings.NONE:
            return None
        return key, options.adapters, forwarder.held > 0

    # --- reading ---------------------------------------------------------------------------

    def _read(self, window: Sequence[Reader]) -> None:
        for reader in window:
            reader.begin()
        able = [reader for reader in window if not reader.over]
        if len(able) > 1:
            self._read_together(able)
        elif able:
            able[0].read()

    def _read_together(self, window: Sequence[Reader]) -> None:
        target, forwarders = self._target, [reader.run.forwarder for reader in window]
        chunks = [reader.run.prefill.chunk() for reader in window]
        layers = {layer for forwarder in forwarders for layer in forwarder.tap_layers}
        forwarders[0].adapt()
        with mx.stream(self._stream):
            tape = read_rows(
                target,
                [forwarder.caches for forwarder in forwarders],
                [forwarder.held for forwarder in forwarders],
                chunks,
                sorted(layers),
                told=[
                    each.options.on_layer
                    for each in forwarders
                    if each.options.on_layer is not None
                ],
            )
            for at, (forwarder, chunk) in enumerate(zip(forwarders, chunks, strict=True)):
                forwarder.held += len(chunk)
                if tape is not None and forwarder.tap_layers:
                    taps = target.taps(tape, forwarder.tap_layers)
                    forwarder.last_taps = taps[at : at + 1, : len(chunk)]
        for reader, chunk in zip(window, chunks, strict=True):
            reader.took(len(chunk))
        if sum(map(len, chunks)) > ROUND_TOKENS // 2:  # large buffers that nobody needs again
            mx.clear_cache()


def _area(window: Sequence[Reader]) -> int:
    """Tokens of a common forward, padding included."""
    return len(window) * max(reader.run.prefill.ahead for reader in window)
