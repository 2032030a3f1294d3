"""Attention in both directions, for any mlx-lm model whose layers use a plain key-value cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import mlx.core as mx


class BothWays:
    """Stands in for a layer's cache and keeps nothing.

    mlx-lm's models ask the cache for the attention mask.  This one answers "none", so every
    position sees all others, which is all that tells LLaDA or Dream from a causal model.
    """

    offset = 0

    def make_mask(self, *_: object, **__: object) -> None:
        """No mask, whatever the length."""

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """The keys and values of this forward, ``[B, heads, L, D]`` each, and no others."""
        return keys, values
