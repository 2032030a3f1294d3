"""The forwards of one request: prefill, pipelined step, window.

Knows the target, its caches and how tokens are chosen; knows nothing of sources.  At every
boundary the caches hold exactly the first ``held`` tokens of the session.
"""

from __future__ import annotations

import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import mlx.core as mx
from attrs import define, field
from mlx_lm.models.cache import KVCache, RotatingKVCache

from mlxfill.errors import InputError
from mlxfill.model.reading import ids as ids_of
from mlxfill.model.reading import one_id, row
from mlxfill.rewind.entries import flat
from mlxfill.rewind.window import CacheWindow
from mlxfill.rows.reading import evaluated
from mlxfill.stats.phases import Phases

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from mlxfill.model.reading import Stream
    from mlxfill.model.target import Target
    from mlxfill.request.options import Options
    from mlxfill.rewind.window import MakeRewinder
    from mlxfill.sampling import Chooser


NOT_TAPING = nullcontext()


@define
class Window:
    """What a sequence puts into a forward: ids that enter in any case, then drafts to be judged.

    ``drafts`` may be ``[d]`` ids still on the device.  ``want_known``: log-probabilities of the
    known ids after the first are wanted.  ``more_known``: the known ids go on in the next window,
    so nothing is sampled after these.
    """

    known: Sequence[int]
    drafts: Sequence[int] | mx.array = ()
    want_known: bool = False
    more_known: bool = False

    @property
    def size(self) -> int:
        """Ids in the window."""
        return len(self.known) + len(self.drafts)


@define
class VerifyResult:
    """What the target said to a window: ``sampled`` are its own choices, the last one is new.

    ``sampled[i]`` was chosen after the i-th judged position; the first ``accepted`` of ``drafts``
    agreed.  ``logprobs[i]`` is the ``[V]`` row that ``sampled[i]`` was chosen from;
    ``known_logprobs`` are those of the known ids after the first (when asked for).  After known ids
    that go on in the next window nothing is sampled.
    """

    sampled: list[int]
    accepted: int
    logprobs: mx.array | list[mx.array]
    drafts: list[int] = field(factory=list)
    known_logprobs: list[mx.array] = field(factory=list)


class TargetRunner:
    """Runs the target for one request.  ``watched``: for a trace, which needs caches of its own."""

    watched = False

    def __init__(  # noqa: PLR0913 - all of them are one request's facts
        self,
        target: Target,
        caches: list[Any],
        chooser: Chooser,
        options: Options,
        processors: Sequence[Callable[[mx.array, mx.array], mx.array]],
        *,
        eos: frozenset[int],
        stream: Stream,
        make_rewinder: MakeRewinder | None = None,
    ) -> None:
        """``caches`` are used in place."""
        self.eos = eos
        self.target, self.caches, self.chooser = target, caches, chooser
        self.options, self.processors, self.stream = options, tuple(processors), stream
        self.window = CacheWindow(target, caches, make_rewinder)
        self.forwards = 0
        self.held = 0
        self.unnamed = 0
        self.build_s = 0.0
        self.aux_layers: tuple[int, ...] = ()
        self.last_aux_states: mx.array | None = None
        self.phases = Phases() if options.phase_times else None
        # Whether only the end can follow what processors were shown last.
        self.complete: Callable[[], bool] = lambda: False
        # Processors and foreign samplers may keep state of their own: they are shown
        # each emitted position once, in order, and no refused one.
        self.one_by_one = bool(self.processors) or chooser.foreign is not None
        # Whether some must also be shown the positions of asserted ids, which nobody samples.
        self.shows_asserted = bool(self.processors)
        self._seen: mx.array | None = None
        self._seen_count = 0
        rings = [e for e in flat(caches) if isinstance(e, RotatingKVCache)]
        self._keeping_rings = [ring for ring in rings if ring.keep]
        if options.kv_bits and rings:
            message = (
                "kv_bits cannot be used with a rotating cache (sliding-window model or"
                " max_kv_size): mlx-lm does not quantize those; leave kv_bits out"
            )
            raise InputError(message)

    def forget(self) -> None:
        """Nobody knows any more what the caches hold; a caller's own list stays as it is."""
        self.caches, self.window = [], CacheWindow(self.target, [])
        self.held = self.unnamed = 0

    # --- prompt -------------------------------------------------------------------

    def prefill(
        self, ids: Sequence[int], embeddings: mx.array | None = None
    ) -> Generator[None, None, mx.array]:
        """Forward the next ids of the prompt, without a head, and evaluate the caches.

        A step for each layer; whoever takes none after that leaves the chunk, and as nobody knows
        then how far it was read, the caches are forgotten, unless they are the caller's own.

        :param embeddings: ``[1, L, H]``, stand in for the ids.
        :returns: logits ``[1, L, V]``, lazy: whoever drops them pays for no head.
        """
        logits = yield from self._take_in(ids, embeddings)
        if len(ids) == self.options.prefill_step_size:  # large buffers that nobody needs again
            mx.clear_cache()
        return logits

    def break_off(self, count: int) -> None:
        """Nobody waits for the ``count`` ids that are being read."""
        if self.options.prompt_cache is None:
            self.forget()
        else:  # computed when somebody needs them
            self.held += count

    def _take_in(
        self, ids: Sequence[int], embeddings: mx.array | None = None
    ) -> Generator[None, None, mx.array]:
        self.adapt()
        with mx.stream(self.stream):
            logits = self._forward(row(ids)[None], self.caches, embeddings)
            self._quantize()
        try:
            yield from evaluated([self.caches])
        except GeneratorExit:
            self.break_off(len(ids))
            raise
        self.held += len(ids)
        return logits

    @property
    def _forward(self) -> Callable[..., mx.array]:
        """``[1, L]`` ids, caches and embeddings to logits ``[1, L, V]``."""
        return self._with_aux_states if self.aux_layers else self.target.forward

    def _with_aux_states(
        self, ids: mx.array, caches: list[Any], embeddings: mx.array | None = None
    ) -> mx.array:
        """The same; the outputs of ``aux_layers`` are then in ``last_aux_states``."""
        with self.target.taping(self.aux_layers) as tape:
            logits = self.target.forward(ids, caches, embeddings)
        self.last_aux_states = self.target.aux_states(tape, self.aux_layers)
        return logits

    # --- one token at a time --------------------------------------------------------

    def step(
        self,
        pending: mx.array,
        histories: Sequence[Sequence[int]],
        unread: int,
        embeddings: mx.array | None = None,
    ) -> tuple[mx.array, mx.array | Sequence[mx.array]]:
        """Dispatch the forward of ``[1]`` ids: the choice ``[1]``, log-probabilities ``[V]``.

        ``histories``: the session as far as the host knows it, ``unread`` tokens short.
        """
        started = time.perf_counter()
        (history,) = histories
        position = len(history) + unread
        self.adapt()
        with mx.stream(self.stream):
            logits = self._forward(pending[None], self.caches, embeddings)[:, -1, :]
            if self.processors:
                mx.async_eval(logits)  # runs while processors read the newest id
                logits = self.processed(self.shown(history, pending, position), logits)
            if self.options.kv_bits is not None:
                self._quantize()
            logprobs = logits - mx.logsumexp(logits, keepdims=True)
            chosen = self.chooser.choose(logprobs, (position,))
            logprobs = logprobs.squeeze(0)
            # Some backends make the caller wait in here: the host's own work ends before.
            self.build_s = time.perf_counter() - started
            mx.async_eval(chosen, logprobs, self._states())
        self.held += 1
        self.forwards += 1
        return chosen, (logprobs,)

    # --- several at once ---------------------------------------------------------------

    def append(self, ids: Sequence[int]) -> None:
        """Forward ids that nobody needs to judge, without a head, and evaluate the caches."""
        for _ in self._take_in(ids):
            pass
        self.forwards += 1

    def verify(
        self, windows: Sequence[Window], histories: Sequence[Sequence[int]]
    ) -> list[VerifyResult]:
        """One window: its drafts are judged, what is refused is taken back.

        ``histories``: all tokens of the session, the known ids of the window included.  An EOS
        among the drafts is never accepted: it ends as the last sample.
        """
        (window,), (tokens,) = windows, histories
        if window.more_known and not window.want_known:
            self.append(window.known)
            return [VerifyResult([], 0, [])]
        known, drafts = window.known, window.drafts
        first, count, start = len(known) - 1, len(drafts), len(tokens)
        self.adapt()
        with mx.stream(self.stream):
            ids = row(known)
            if count:
                tail = drafts if isinstance(drafts, mx.array) else row(drafts)
                ids = mx.concatenate([ids, tail.astype(ids.dtype)])
            begin = 0 if window.want_known else first
            logits = self._window_logits(ids[None], begin, rewinds=count > 0)
            self._end_phase("verify", logits)
            rows = []
            if window.want_known:
                rows = self.known_rows(logits[:first], start - len(known), tokens)
                logits = logits[first:]
            if self.one_by_one:
                result = self.walk(logits, read_drafts(drafts), list(tokens))
            else:
                result = self._compare(logits, drafts, start)
            result.known_logprobs = rows
            self._end_phase("sample")
            keep = len(known) + result.accepted
            if count:
                self._take_back(keep)
            else:
                mx.async_eval(self._states())
            self._quantize()
            self._end_phase("commit", [c.state for c in self.caches] if self.phases else ())
        if self.last_aux_states is not None:
            self.last_aux_states = self.last_aux_states[:, :keep]
        self.held += keep
        self.forwards += 1
        return [result]

    def _window_logits(self, ids: mx.array, first: int, *, rewinds: bool) -> mx.array:
        """``[1, S]`` ids to the logits ``[S - first, V]`` from position ``first`` on."""
        target = self.target
        split = first > 0 and target.split

        def run(window: mx.array) -> mx.array:
            if split:
                return target.project(target.hidden(window, self.caches)[:, first:])
            return target.forward(window, self.caches)[:, first:]

        if rewinds:
            self.window.begin(ids.shape[1])
        replays = rewinds and self.window.needs_tape
        layers = () if replays else self.aux_layers  # none named: all
        with target.taping(layers) if replays or layers else NOT_TAPING as tape:
            logits = run(ids)
        if rewinds:
            self.window.taped(tape)
        if tape is not None and self.aux_layers:
            self.last_aux_states = target.aux_states(tape, self.aux_layers)
        return logits[0]

    def _end_phase(self, name: str, arrays: object = ()) -> None:
        if self.phases is not None:
            self.phases.end(name, arrays)

    def _take_back(self, keep: int) -> None:
        """Rewind, and let what that computes run while the host goes on."""
        self.adapt()
        self.window.rewind(keep)
        mx.async_eval([entry.state for entry in self.caches if type(entry) is not KVCache])

    def _states(self) -> list[Any]:
        """What no logits need, and is to be computed with them: caches go to other threads.

        Keys and values are what logits are made of; of a state the next token makes the next one.
        """
        return [entry.state for entry in flat(self.caches) if not hasattr(entry, "trim")]

    def known_rows(self, logits: mx.array, before: int, tokens: Sequence[int]) -> list[mx.array]:
        """Log-probabilities ``[V]`` of the choices that the known ids replaced."""
        rows = []
        for i in range(logits.shape[0]):
            each = logits[i : i + 1]
            if self.processors:
                each = self.processed(self.shown(tokens, None, before + 1 + i), each)
            rows.append((each - mx.logsumexp(each, axis=-1, keepdims=True))[0])
        return rows

    def _compare(
        self, logits: mx.array, drafts: Sequence[int] | mx.array, position: int
    ) -> VerifyResult:
        """Sample all positions at once and read drafts and samples together."""
        count = logits.shape[0]
        logprobs = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
        sampled = self.chooser.choose(logprobs, range(position, position + count))
        if isinstance(drafts, mx.array):
            both = ids_of(mx.concatenate([sampled.astype(mx.int32), drafts.astype(mx.int32)]))
            chosen, values = both[:count], both[count:]
        else:
            chosen, values = ids_of(sampled), list(drafts)
        accepted = self.agreed(chosen, values)
        return VerifyResult(chosen[: accepted + 1], accepted, logprobs, values)

    def agreed(self, chosen: Sequence[int], drafts: Sequence[int]) -> int:
        """How many drafts the target chose as well, up to an EOS."""
        accepted = 0
        for token, draft in zip(chosen, drafts, strict=False):
            if token != draft or token in self.eos:
                break
            accepted += 1
        return accepted

    def walk(self, logits: mx.array, drafts: list[int], history: list[int]) -> VerifyResult:
        """Judge position by position, so that processors see emitted tokens only."""
        sampled: list[int] = []
        rows: list[mx.array] = []
        while True:
            at = len(sampled)
            each = logits[at : at + 1]
            if self.processors:
                each = self.processed(self.shown(history, None, len(history)), each)
            logprobs = each - mx.logsumexp(each, axis=-1, keepdims=True)
            token = one_id(self.chooser.choose(logprobs, (len(history),)))
            sampled.append(token)
            rows.append(logprobs[0])
            agreed = at < len(drafts) and token == drafts[at] and token not in self.eos
            if not agreed or self.complete():
                return VerifyResult(sampled, at, rows, drafts)
            history.append(token)

    # --- pieces ---------------------------------------------------------------------------

    def adapt(self) -> None:
        """Before layers are called: a callback may have asked the engine under another adapter."""
        self.target.adapters.switch(self.options.adapters, self)

    def processed(self, tokens: mx.array, logits: mx.array) -> mx.array:
        """``[1, V]`` logits after all processors, which see ``tokens``."""
        for processor in self.processors:
            logits = processor(tokens, logits)
        return logits

    def shown(self, history: Sequence[int], pending: mx.array | None, length: int) -> mx.array:
        """What processors are shown, on the device: the session without its unnamed beginning.

        The host's part is kept from call to call.
        """
        known = min(len(history), length)
        if self._seen is None:
            self._seen, self._seen_count = row(history[self.unnamed : known]), known
        elif self._seen_count < known:
            fresh = row(history[self._seen_count : known])
            self._seen, self._seen_count = mx.concatenate([self._seen, fresh]), known
        tokens = self._seen if self._seen_count == known else self._seen[: known - self.unnamed]
        if known == length or pending is None:
            return tokens
        return mx.concatenate([tokens, pending.astype(tokens.dtype)])

    def room(self) -> int | None:
        """How many ids the next window may hold for plain decoding to read the same; None: any.

        Plain decoding quantizes after the forward that reaches ``quantized_kv_start``; a
        window across it would read unquantized entries that plain decoding does not.  A ring
        that keeps its first tokens (``max_kv_size``) loses them from sight within a window
        once it is full: mlx-lm's mask counts back from each id as if nothing were kept.
        """
        options, held = self.options, self.held
        limits = [max(ring.max_size - ring.offset, 1) for ring in self._keeping_rings]
        if options.kv_bits is not None and held < options.quantized_kv_start:
            limits.append(options.quantized_kv_start - held)
        return min(limits, default=None)

    @property
    def quantizes(self) -> bool:
        """Whether some entries are still to be quantized: on the way, or by the first forward."""
        wanted = self.options.kv_bits is not None
        return wanted and any(hasattr(entry, "to_quantized") for entry in self.caches)

    def _quantize(self) -> None:
        options = self.options
        if options.kv_bits is None:
            return
        for at, entry in enumerate(self.caches):
            if hasattr(entry, "to_quantized") and entry.offset >= options.quantized_kv_start:
                self.caches[at] = self._quantized(entry)

    def _quantized(self, entry: Any) -> Any:  # noqa: ANN401
        size, bits = self.options.kv_group_size, self.options.kv_bits
        try:
            return entry.to_quantized(group_size=size, bits=bits)
        except ValueError as error:
            sizes = entry.keys.shape[-1], entry.values.shape[-1]
            message = (
                f"kv_group_size {size} does not divide this model's keys of {sizes[0]} and values "
                f"of {sizes[1]} numbers: give one that does (32, 64, 128), or leave kv_bits out"
            )
            raise InputError(message) from error


def read_drafts(drafts: Sequence[int] | mx.array) -> list[int]:
    """Their ids on the host."""
    return ids_of(drafts) if isinstance(drafts, mx.array) else list(drafts)
