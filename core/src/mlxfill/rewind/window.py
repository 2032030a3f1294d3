"""Rewinding all cache entries of a model together."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import mlx.core as mx

from mlxfill.errors import ModelError
from mlxfill.model.reading import apart
from mlxfill.rewind.entries import GenericRewinder, builtin_rewinder, is_plain
from mlxfill.rewind.replay import TapedLayer, Window
from mlxfill.rewind.rings import wider_than_ring

if TYPE_CHECKING:
    from collections.abc import Callable

    from mlxfill.contracts import CacheRewinder, LayerReplay
    from mlxfill.model.hooks import LayerTrace
    from mlxfill.model.target import Target

    MakeRewinder = Callable[[object, LayerReplay], CacheRewinder | None]


class CacheWindow:
    """One window at a time over one prompt cache: begin, forward, then commit or rewind.

    ::

        window = CacheWindow(target, cache)
        logits = window.forward(ids)      # [1, S] ids, [1, S, V] logits
        window.rewind(keep)               # or window.commit()

    ``supported`` is False when some entry has no rewinder; ``unsupported`` names it.
    """

    def __init__(
        self,
        target: Target,
        cache: list[Any],
        make: MakeRewinder | None = None,
        *,
        make_first: bool = False,
    ) -> None:
        """``target``: ``Engine.target``.

        :param make: called with an entry and its layer where mlxfill has no rewinder of its own.
        :param make_first: call it for every entry, to try a rewinder beside mlxfill's own.
        """
        self.target, self.cache = target, cache
        makers = [builtin_rewinder, make or (lambda _entry, _layer: None)]
        self._makers = makers[::-1] if make_first else makers
        self._window = Window()
        self._entries: list[Any] = []
        self._rewinders: list[Any] = []
        self.unsupported = ""
        self._refresh()

    @property
    def supported(self) -> bool:
        """Whether every entry can be taken back."""
        return not self.unsupported

    def _refresh(self) -> None:
        """Make rewinders for the entries of now: quantization replaces entries."""
        self._entries = list(self.cache)
        self._rewinders, self.unsupported = [], ""
        for entry in self._entries:
            rewinder = self._rewinder(entry)
            if rewinder is None:
                self.unsupported = type(entry).__name__
                return
            self._rewinders.append(rewinder)
        self.needs_tape = any(getattr(r, "needs_replay", True) for r in self._rewinders)

    def _rewinder(self, entry: object) -> CacheRewinder | None:
        """That of a kind nobody knows only where the model makes it: that one has been tried."""
        layer = TapedLayer(self._window, entry)
        first, second = self._makers
        known = first(entry, layer) or second(entry, layer)
        if known is None and type(entry) in self.target.cache_kinds and is_plain(entry):
            return GenericRewinder(entry, layer)
        return known

    def begin(self, size: int) -> None:
        """Before a window of ``size`` ids."""
        if any(a is not b for a, b in zip(self._entries, self.cache, strict=True)):
            self._refresh()
        if self.unsupported:
            message = f"a {self.unsupported} cannot be taken back"
            raise ModelError(message)
        self._window.size = size
        for rewinder in self._rewinders:
            rewinder.begin()

    def forward(self, ids: mx.array, run: Callable[[mx.array], mx.array] | None = None) -> mx.array:
        """Begin a window and forward its ids ``[1, S]``; ``run`` replaces the plain forward."""
        self.begin(ids.shape[1])
        run = run or (lambda window: self.target.forward(window, self.cache))
        with self.target.taping() if self.needs_tape else nullcontext() as tape:
            out = run(ids)
        self.taped(tape)
        return out

    def taped(self, tape: LayerTrace | None) -> None:
        """Take the tape of a window that was forwarded elsewhere."""
        self._window.tape = tape

    def commit(self) -> None:
        """The window stays whole."""
        for rewinder in self._rewinders:
            rewinder.commit()
        self._window.tape = None

    def rewind(self, keep: int) -> None:
        """Only the first ``keep`` ids of the window stay, ``0 <= keep <= S``."""
        if keep == self._window.size:
            self.commit()
            return
        for rewinder in self._rewinders:
            rewinder.rewind(keep)
        self._window.tape = None


def prove_rewind(target: Target, make: MakeRewinder | None = None) -> str:
    """Try a rewind on the bound model: "" when it is exact, else the reason why not.

    Forwards three ids on a two-id context, takes two of them back, and compares the next
    logits with a run that never saw them.  Exact up to the precision of the dtype.
    """
    context, window, after = (mx.array([ids]) for ids in ([1, 2], [3, 4, 5], [6]))
    try:
        if wider := wider_than_ring(target):
            return wider
        tried, never = target.new_cache(), target.new_cache()
        for cache in (tried, never):
            mx.eval(target.forward(context, cache))
        rewinder = CacheWindow(target, tried, make)
        if not rewinder.supported:
            return f"its {rewinder.unsupported} has no rewinder"
        mx.eval(rewinder.forward(window))
        rewinder.rewind(1)
        mx.eval(target.forward(window[:, :1], never))
        ours, theirs = target.forward(after, tried), target.forward(after, never)
        off = apart(ours, theirs)
    except Exception as error:  # noqa: BLE001 - whatever a foreign model raises: no rewinding
        return f"{type(error).__name__}: {error}"
    allowed = 16 * mx.finfo(target.dtype).eps
    return "" if off <= allowed else f"logits differ by {off:.2g} after a rewind"
