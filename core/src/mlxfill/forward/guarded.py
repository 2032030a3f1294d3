"""Parts of plugins that a request cannot go on without: what goes wrong in them ends it by name."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import mlx.core as mx
from attrs import frozen

from mlxfill.errors import InputError, MlxfillError, PluginError
from mlxfill.plugins.faults import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mlxfill.contracts import CacheRewinder, Fault, LayerReplay, TargetView
    from mlxfill.plugins import PluginManager


@contextmanager
def named(plugin: str, part: str) -> Iterator[None]:
    """Raise ``PluginError`` for whatever a plugin raises inside, ``SystemExit`` too.

    Ctrl-C and errors of mlxfill pass.
    """
    try:
        yield
    except (MlxfillError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise PluginError(f"plugin {plugin!r} failed in {part}: {one_line(error)}") from error


@frozen
class NamedProcessor:
    """A plugin's logits processor.  Left out it would change the reply, so its errors end it."""

    plugin: str
    process: Callable[[mx.array, mx.array], mx.array]
    part: str = "its logits processor"

    def __call__(self, tokens: mx.array, logits: mx.array) -> mx.array:
        """``[L]`` tokens and ``[1, V]`` logits to logits."""
        with named(self.plugin, self.part):
            answer = self.process(tokens, logits)
            if not isinstance(answer, mx.array):
                raise TypeError(f"answered {type(answer).__name__}, not an mx.array")
            if answer.shape != logits.shape:
                raise ValueError(f"answered shape {answer.shape} for logits {logits.shape}")
            return answer


@frozen
class CheckedProcessor:
    """A logits processor of the caller.  What it raises passes as it is."""

    process: Callable[[mx.array, mx.array], mx.array]

    def __call__(self, tokens: mx.array, logits: mx.array) -> mx.array:
        """``[L]`` tokens and ``[1, V]`` logits to logits; ``InputError`` for anything else."""
        answer = self.process(tokens, logits)
        if isinstance(answer, mx.array) and answer.shape == logits.shape:
            return answer
        shown = f"shape {answer.shape}" if isinstance(answer, mx.array) else f"{answer!r:.80}"
        raise InputError(
            f"a logits processor must return logits of shape {logits.shape}, not"
            f" {' '.join(shown.split())}"
        )


@frozen(eq=False)
class NamedRewinder:
    """A plugin's rewinder.  After an error in it nobody knows what the cache holds."""

    plugin: str
    rewinder: CacheRewinder

    @property
    def needs_replay(self) -> bool:
        """Whether windows must be taped; assumed of rewinders that do not say."""
        return bool(getattr(self.rewinder, "needs_replay", True))

    def begin(self) -> None:
        """Before a window."""
        with named(self.plugin, "begin() of its rewinder"):
            self.rewinder.begin()

    def commit(self) -> None:
        """The window stays."""
        with named(self.plugin, "commit() of its rewinder"):
            self.rewinder.commit()

    def rewind(self, keep: int) -> None:
        """Only ``keep`` ids stay."""
        with named(self.plugin, "rewind() of its rewinder"):
            self.rewinder.rewind(keep)


class PluginRewinders:
    """Rewinders from plugins, for cache entries that the core does not know."""

    def __init__(self, plugins: PluginManager, target: TargetView, faults: list[Fault]) -> None:
        """``faults`` gets what goes wrong, each thing once."""
        self._plugins, self._target, self._faults = plugins, target, faults

    def __call__(self, entry: object, layer: LayerReplay) -> CacheRewinder | None:
        """The first plugin's that has one."""
        wrong: list[Fault] = []
        found = self._plugins.cache_rewinder(entry, layer, self._target, wrong)
        self._faults += [fault for fault in wrong if fault not in self._faults]
        return NamedRewinder(*found) if found else None
