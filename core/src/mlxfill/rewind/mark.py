"""Going back to a boundary in a prompt cache after any number of forwards.

A ``CacheWindow`` takes back the tail of one window.  A draft model writes its tokens one
forward at a time, into caches of any kind; a mark remembers where it started.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mlx_lm.models.cache import ChunkedKVCache, ConcatenateKVCache

from mlxfill.rewind.entries import flat, kept

if TYPE_CHECKING:
    from collections.abc import Sequence


class CacheMark:
    """A boundary in an mlx-lm prompt cache to which the cache can be taken back once.

    ::

        mark = CacheMark(cache, ahead=4)
        ...                       # forwards of at most 4 tokens
        held = mark.back(2)       # 2: trimmed; 0: at the mark, forward those 2 again

    Works for every kind of entry and copies nothing unless a forward writes into it.  ``ahead``:
    most tokens that will be forwarded before ``back``.
    """

    def __init__(self, cache: Sequence[Any], *, ahead: int) -> None:
        self._offsets: list[tuple[Any, int]] = []
        self._contents: list[tuple[Any, dict[str, Any]]] = []
        for entry in flat(cache):
            if _can_trim(entry, ahead):
                self._offsets.append((entry, entry.offset))
            else:
                self._contents.append((entry, kept(vars(entry))))

    def back(self, keep: int) -> int:
        """Take the cache back to ``keep`` tokens after the mark, or to the mark itself.

        :returns: how many tokens after the mark the cache holds now: ``keep`` where every entry
            can be trimmed, else 0.
        """
        held = 0 if self._contents else keep
        for entry, offset in self._offsets:
            if entry.offset > offset:  # else it is one that no layer writes
                entry.trim(entry.offset - offset - held)
        for entry, content in self._contents:
            vars(entry).update(content)
        return held


def _can_trim(entry: Any, ahead: int) -> bool:  # noqa: ANN401
    """Whether an entry can still be trimmed to its present length ``ahead`` tokens later."""
    if isinstance(entry, ConcatenateKVCache):
        return False  # it moves its offset and leaves the arrays
    if not hasattr(entry, "is_trimmable") or not entry.is_trimmable():
        return False
    if isinstance(entry, ChunkedKVCache):  # each forward drops what fell out of the chunk
        return bool(entry.offset - entry.start_position + ahead <= entry.chunk_size)
    size = getattr(entry, "max_size", None)
    return size is None or entry.offset + ahead < size
