"""Prompt caches of several sequences in one batch, for a draft model that forwards them at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mlx_lm.models.cache import KVCache, QuantizedKVCache

from mlxfill.rows.caches import RowCaches

if TYPE_CHECKING:
    from collections.abc import Sequence


class BatchedCache:
    """Rows of keys and values, each as long as it is; ``entries`` are a model's prompt cache.

    ::

        batch = BatchedCache()
        batch.join(caches)                       # mlx-lm prompt caches that hold tokens
        logits = model(ids, cache=batch.entries)  # [B, S] ids, as many in each row
        batch.advance([S, 0, 2])                 # of which each row keeps the first few
        batch.rewind([1, 0, 0])                  # and gives back its last ones

    Row b's ids are written after its own last one: what it does not keep is overwritten, nothing
    moves.
    """

    def __init__(self) -> None:
        """No rows."""
        self._rows = RowCaches()

    @staticmethod
    def fits(cache: Sequence[Any]) -> bool:
        """Whether a prompt cache can be a row: it holds tokens, in plain or quantized entries."""
        kinds = (KVCache, QuantizedKVCache)
        return bool(cache) and all(type(entry) in kinds and entry.offset for entry in cache)

    @property
    def entries(self) -> list[Any]:
        """What a model is called with."""
        return self._rows.entries

    @property
    def held(self) -> list[int]:
        """Tokens of each row."""
        return list(self._rows.lengths.held)

    def join(self, caches: Sequence[Sequence[Any]]) -> None:
        """Rows join at the end; the caches are not changed."""
        self._rows.join(caches, [cache[0].offset for cache in caches])

    def keep(self, rows: Sequence[int]) -> None:
        """Only these rows remain, in this order."""
        self._rows.keep(rows)

    def extract(self, row: int) -> list[Any]:
        """A row as an mlx-lm prompt cache of its own."""
        return self._rows.extract(row)

    def advance(self, counts: Sequence[int]) -> None:
        """Row b keeps the first ``counts[b]`` ids of the forward that was."""
        self._rows.advance(counts)

    def rewind(self, counts: Sequence[int]) -> None:
        """Row b gives back its last ``counts[b]`` ids."""
        self._rows.advance([-count for count in counts])
