"""Whose prompt is read next, how much of it, and who else's in the same forward."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mlx.core as mx
from attrs import define

from mlxfill.rows.caches import layout
from mlxfill.rows.proof import Readings
from mlxfill.rows.reading import evaluated, read_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from mlxfill.decode.profile import ModelProfile
    from mlxfill.decode.runstate import RunState
    from mlxfill.model.reading import Stream
    from mlxfill.model.target import Target

ROUND_TOKENS = 2048
"""Prompt tokens after which rows that decode get their next round."""
SHORT = 128
"""Tokens that are read in about the time of a step: whoever is ready waits for them."""
TURN_S = 1.0
"""Seconds of reading after which others have their turn, if it is a layer that ends there."""
PADDING = 0.25
"""Share of a common forward that may be padding; beyond that prompts are read apart."""


@define(eq=False)
class PrefillJob:
    """A run whose prompt is being read.  ``error``: what one of its callbacks raised."""

    run: RunState
    begun: bool = False
    gone: bool = False
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

    def read(self) -> Iterator[None]:
        """Forward the next chunk alone, a step for each layer."""
        try:
            yield from self.run.prefill.read()
        except Exception as error:  # noqa: BLE001 - a caller's callback may raise anything
            self.error = error
        self.run.heed_cancel()

    def took(self, count: int) -> None:
        """``count`` tokens were forwarded among others."""
        self._attempt(lambda: self.run.prefill.took(count))

    def _attempt(self, act: Callable[[], None]) -> None:
        try:
            act()
        except Exception as error:  # noqa: BLE001 - a caller's callback may raise anything
            self.error = error
        self.run.heed_cancel()


@define(eq=False)
class Chunk:
    """Tokens of one prompt or several in a forward that is computed layer by layer."""

    window: list[PrefillJob]
    area: int
    steps: Generator[None, None, None]
    layers: int
    done: int = 0

    @property
    def left(self) -> float:
        """Tokens, padding included, that still take their time."""
        return self.area * (1 - self.done / max(self.layers, 1))

    def go_on(self) -> bool:
        """Compute a layer; whether there may be more."""
        self.done = min(self.done + 1, self.layers)
        return next(self.steps, self) is None


class PrefillQueue:
    """Reads prompts, those of about the same length in one forward.

    The shortest rest comes first: it holds the others up least, and its run decodes while they
    read on; whoever is ready waits for others as long again at most.  The oldest is not passed for
    ever: its chunk is due when ``ROUND_TOKENS`` of others have been read since its last one.

    A chunk that is not read in ``TURN_S`` goes on in the next round, unless somebody with a shorter
    rest has come.  Where it ends does not depend on the clock, and so no reply does.
    """

    def __init__(
        self, target: Target, learnt: ModelProfile, stream: Stream, clock: Callable[[], float]
    ) -> None:
        """Nobody reads yet.  ``clock``: seconds."""
        self._target, self._learnt, self._stream = target, learnt, stream
        self._clock = clock
        self._readers: list[PrefillJob] = []
        self._chunks: list[Chunk] = []
        self._passed = 0.0

    def __len__(self) -> int:
        """Runs that read."""
        return len(self._readers)

    def add(self, run: RunState) -> None:
        """A run joins that has computed nothing."""
        self._readers.append(PrefillJob(run))

    def drop(self, run: RunState) -> None:
        """A run leaves."""
        self._leave([reader for reader in self._readers if reader.run is run])

    def round(self) -> list[PrefillJob]:
        """Read ``ROUND_TOKENS``, a chunk or for ``TURN_S``; readers that are over, which leave."""
        over: list[PrefillJob] = []
        read, until = 0.0, self._clock() + TURN_S
        while self._readers:
            chunk = self._next()
            waits = bool(over) and chunk.left > max(read, SHORT)
            if read and (waits or read + chunk.left > ROUND_TOKENS):
                break
            read += chunk.left
            if chunk not in self._chunks:
                self._passed = 0 if self._readers[0] in chunk.window else self._passed + chunk.area
                self._chunks.append(chunk)
            whole = self._read(chunk, until)
            ended = [reader for reader in chunk.window if not reader.gone and reader.over]
            self._leave(ended)
            over += ended
            if not whole:
                break
        return over

    def _read(self, chunk: Chunk, until: float) -> bool:
        """Go on with a chunk while there is time; whether it was read."""
        while chunk.go_on():
            for reader in chunk.window:
                reader.run.heed_cancel()
            unwanted = all(each.gone or each.run.ending is not None for each in chunk.window)
            if unwanted or self._clock() >= until:
                return False
        self._chunks.remove(chunk)
        return True

    def _leave(self, leaving: Sequence[PrefillJob]) -> None:
        """Runs that read no more; a chunk that nobody waits for is left where it is."""
        for reader in leaving:
            reader.gone = True
        self._readers = [reader for reader in self._readers if not reader.gone]
        for chunk in list(self._chunks):
            staying = [reader for reader in chunk.window if not reader.gone]
            if not staying:
                self._chunks.remove(chunk)
                chunk.steps.close()
            if len(chunk.window) > 1:
                for reader in leaving:
                    if reader in chunk.window:
                        reader.run.forwarder.forget()

    # --- who -------------------------------------------------------------------------------

    def _next(self) -> Chunk:
        """What is read next: of what is under way and what could be begun, the shortest rest."""
        reading = [reader for chunk in self._chunks for reader in chunk.window]
        waiting = [reader for reader in self._readers if reader not in reading]
        due = self._passed >= ROUND_TOKENS
        chunks = [*self._chunks, *([self._chunk(waiting, due=due)] if waiting else [])]
        oldest = [chunk for chunk in chunks if self._readers[0] in chunk.window] if due else []
        return min(oldest or chunks, key=lambda each: each.left)

    def _chunk(self, readers: Sequence[PrefillJob], *, due: bool) -> Chunk:
        """What these would read next."""
        window = self._window(readers, due=due)
        layers = len(window[0].run.forwarder.caches)
        return Chunk(window, _area(window), self._steps(window), layers)

    def _window(self, readers: Sequence[PrefillJob], *, due: bool) -> list[PrefillJob]:
        """Those of them who read next, together.  ``due``: the oldest among them."""
        first = readers[0] if due else min(readers, key=lambda each: each.run.prefill.left)
        window, ahead = [first], first.run.prefill.ahead
        kind = self._kind(first.run) if ahead and len(readers) > 1 else None
        if kind is None:
            return window
        for other in sorted(readers, key=lambda each: abs(each.run.prefill.ahead - ahead)):
            alike = other is not first and self._kind(other.run) == kind
            if alike and self._fit([*window, other]):
                window.append(other)
        return window

    def _fit(self, window: Sequence[PrefillJob]) -> bool:
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

    def _steps(self, window: Sequence[PrefillJob]) -> Generator[None, None, None]:
        """Forward the next chunk of each, a step for each layer."""
        for reader in window:
            reader.begin()
        able = [reader for reader in window if not reader.over]
        if len(able) > 1:
            yield from self._together(able)
        elif able:
            yield from able[0].read()

    def _together(self, window: Sequence[PrefillJob]) -> Generator[None, None, None]:
        target, forwarders = self._target, [reader.run.forwarder for reader in window]
        chunks = [reader.run.prefill.chunk() for reader in window]
        caches = [forwarder.caches for forwarder in forwarders]
        held = [forwarder.held for forwarder in forwarders]
        layers = {layer for forwarder in forwarders for layer in forwarder.aux_layers}
        forwarders[0].adapt()
        with mx.stream(self._stream):
            tape = read_rows(target, caches, held, chunks, sorted(layers))
        yield from evaluated(caches)
        for at, (reader, chunk) in enumerate(zip(window, chunks, strict=True)):
            if reader.gone:
                continue
            forwarder = reader.run.forwarder
            forwarder.held += len(chunk)
            if tape is not None and forwarder.aux_layers:
                aux_states = target.aux_states(tape, forwarder.aux_layers)
                forwarder.last_aux_states = aux_states[at : at + 1, : len(chunk)]
            reader.took(len(chunk))
        if sum(map(len, chunks)) > ROUND_TOKENS // 2:  # large buffers that nobody needs again
            mx.clear_cache()


def _area(window: Sequence[PrefillJob]) -> int:
    """Tokens of a common forward, padding included."""
    return len(window) * max(reader.run.prefill.ahead for reader in window)
