"""One rewinder for each kind of cache entry that mlx-lm has."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import mlx.core as mx
from mlx_lm.models.cache import (
    ArraysCache,
    CacheList,
    ConcatenateKVCache,
    RotatingKVCache,
)

from mlxfill.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mlxfill.contracts import CacheRewinder, LayerReplay


def flat(cache: Iterable[Any]) -> Iterator[Any]:
    """The entries of a prompt cache, parts of composite ones each on its own."""
    for entry in cache:
        if isinstance(entry, CacheList):
            yield from flat(entry.caches)
        else:
            yield entry


def kept(value: Any) -> Any:  # noqa: ANN401
    """A copy whose arrays are handles of their own: writing through the others leaves them be."""
    if isinstance(value, mx.array):
        return copy.copy(value)
    if isinstance(value, dict):
        return {key: kept(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(kept(each) for each in value)
    return value


class Trimming:
    """Keys and values of every token in place: KV, quantized KV, chunked KV."""

    needs_replay = False

    def __init__(self, entry: Any, layer: LayerReplay) -> None:  # noqa: ANN401
        """``entry`` has mlx-lm's ``trim``."""
        self.entry, self.layer = entry, layer

    def begin(self) -> None:
        """Nothing to keep: the offset says it all."""

    def commit(self) -> None:
        """Nothing to drop."""

    def rewind(self, keep: int) -> None:
        """Trim the tail; the capability is asked now, not once."""
        if self._unused():
            return
        tail = self.layer.window() - keep
        if not self.entry.is_trimmable() or self.entry.trim(tail) != tail:
            message = f"{type(self.entry).__name__} did not give back {tail} tokens"
            raise ModelError(message)

    def _unused(self) -> bool:
        """Whether nothing was ever written: a layer without attention may have an entry too."""
        empty = getattr(self.entry, "empty", None)
        return empty is not None and bool(empty())


class ConcatenateRewinder(Trimming):
    """``ConcatenateKVCache``: its ``trim`` moves the offset and leaves the arrays."""

    def rewind(self, keep: int) -> None:
        """Trim and cut the arrays to the offset."""
        super().rewind(keep)
        end = self.entry.offset
        self.entry.keys = self.entry.keys[..., :end, :]
        self.entry.values = self.entry.values[..., :end, :]


class Recurrent:
    """State arrays that hold no positions: gated DeltaNet, Mamba, short convolutions."""

    needs_replay = True

    def __init__(self, entry: ArraysCache, layer: LayerReplay) -> None:
        """``layer`` refills ``entry``."""
        self.entry, self.layer = entry, layer
        self._saved: tuple[Any, ...] = ()

    def begin(self) -> None:
        """Keep the arrays; a forward replaces them, but counts ``lengths`` down in place."""
        entry = self.entry
        self._saved = (list(entry.cache), copy.copy(entry.left_padding), copy.copy(entry.lengths))

    def commit(self) -> None:
        """Let the old state go."""
        self._saved = ()

    def rewind(self, keep: int) -> None:
        """Restore, then let the layer process its kept inputs again."""
        arrays, padding, lengths = self._saved
        self.entry.cache, self.entry.left_padding, self.entry.lengths = arrays, padding, lengths
        self._saved = ()
        if keep:
            self.layer.replay(keep)


class Rotating:
    """Sliding windows, before, at and after the wrap.

    A window of two or more ids makes mlx-lm build new arrays with the newest entries
    last, so the old arrays stay intact and the new entries can be appended again.
    """

    needs_replay = False

    def __init__(self, entry: RotatingKVCache, layer: LayerReplay) -> None:
        """``entry`` may have wrapped."""
        self.entry, self.layer = entry, layer
        self._saved: tuple[Any, ...] = ()

    def begin(self) -> None:
        """Keep handles of their own: a single-id forward writes through the entry's."""
        e = self.entry
        self._saved = (copy.copy(e.keys), copy.copy(e.values), e.offset, e._idx)  # noqa: SLF001

    def commit(self) -> None:
        """Let the old arrays go."""
        self._saved = ()

    def rewind(self, keep: int) -> None:
        """Restore the arrays and append the kept entries again."""
        e: Any = self.entry
        size = self.layer.window()
        if keep:
            end = e._idx  # noqa: SLF001
            keys = e.keys[..., end - size : end - size + keep, :]
            values = e.values[..., end - size : end - size + keep, :]
        e.keys, e.values, e.offset, e._idx = self._saved  # noqa: SLF001
        self._saved = ()
        if keep:
            e.update_and_fetch(keys, values)


class GenericRewinder:
    """An entry of a model's own making: what it holds is put back, and its layer called again."""

    needs_replay = True

    def __init__(self, entry: object, layer: LayerReplay) -> None:
        """``entry`` is one of ``is_plain``."""
        self.entry, self.layer = entry, layer
        self._saved: dict[str, Any] = {}

    def begin(self) -> None:
        """Keep handles of all arrays, and the numbers beside them."""
        self._saved = kept(vars(self.entry))

    def commit(self) -> None:
        """Let the old contents go."""
        self._saved = {}

    def rewind(self, keep: int) -> None:
        """Restore, then let the layer process its kept inputs again."""
        self.entry.__dict__, self._saved = self._saved, {}
        if keep:
            self.layer.replay(keep)


def is_plain(entry: object) -> bool:
    """Whether an object is nothing but arrays, numbers, texts and containers of them."""
    return hasattr(entry, "__dict__") and all(_is_value(each) for each in vars(entry).values())


def _is_value(value: object) -> bool:
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, list | tuple):
        return all(_is_value(each) for each in value)
    return value is None or isinstance(value, mx.array | mx.Dtype | int | float | str)


class Composite:
    """``CacheList``: each part by its kind; the layer is replayed once for all parts."""

    def __init__(self, parts: list[Any], layer: LayerReplay) -> None:
        """``parts`` are the rewinders of the list's caches."""
        self.parts, self.layer = parts, layer
        self.needs_replay = any(p.needs_replay for p in parts)

    def begin(self) -> None:
        """Begin every part."""
        for part in self.parts:
            part.begin()

    def commit(self) -> None:
        """Commit every part."""
        for part in self.parts:
            part.commit()

    def rewind(self, keep: int) -> None:
        """Take every part to ``keep``, or all to the start and replay."""
        for part in self.parts:
            part.rewind(0 if self.needs_replay else keep)
        if self.needs_replay and keep:
            self.layer.replay(keep)


def builtin_rewinder(entry: object, layer: LayerReplay) -> CacheRewinder | None:
    """The rewinder for one of mlx-lm's own cache entries, None for others."""
    if isinstance(entry, CacheList):
        parts = [builtin_rewinder(part, layer) for part in entry.caches]
        return None if None in parts else Composite(parts, layer)
    if isinstance(entry, ArraysCache):
        return Recurrent(entry, layer)
    if isinstance(entry, RotatingKVCache):
        return Rotating(entry, layer)
    if isinstance(entry, ConcatenateKVCache):
        return ConcatenateRewinder(entry, layer)
    if hasattr(entry, "trim") and hasattr(entry, "is_trimmable") and entry.is_trimmable():
        return Trimming(entry, layer)
    return None
