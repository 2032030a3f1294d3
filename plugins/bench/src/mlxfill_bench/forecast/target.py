"""A target without weights: it says what was recorded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
from mlx import nn
from mlx_lm.models.cache import KVCache

PART = 1024
"""The script's length is a multiple of this: kernels are compiled for few shapes."""


class ScriptedModel(nn.Module):
    """After each prefix of its script it says the script's next id, after anything else ``end``.

    The caches hold, for each id, whether it and all before it were the script's: an id that was
    asserted otherwise ends the reply, a guess that is taken back leaves no trace.

    Once there is something to say, logits are two wide: their difference is the id, and ``chosen``
    reads it.  A row as wide as a real vocabulary would take a hundred times as long.
    """

    def __init__(self, vocab_size: int, end: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.layers: list[nn.Module] = []
        self._vocab_size, self._end = vocab_size, end
        self.say(())

    def say(self, script: Sequence[int]) -> None:
        """From now on say this: ids of prompt and reply."""
        padding = PART - len(script) % PART
        self._speaks = bool(script)
        self._script = mx.array([*script, *[self._end] * padding], dtype=mx.int32)
        mx.eval(self._script)

    def make_cache(self) -> list[KVCache]:
        """One entry, of one number a token."""
        return [KVCache()]

    def __call__(self, ids: mx.array, cache: list[Any]) -> mx.array:
        """``[1, L]`` ids to ``[1, L, 2]`` logits, ``[1, L, V]`` before it says anything."""
        held, count = cache[0].offset, ids.shape[1]
        at = mx.minimum(mx.arange(held, held + count), self._script.size - 2)
        right = mx.cumprod((ids[0] == self._script[at]).astype(mx.float32))
        if held:
            right = right * cache[0].keys[0, 0, held - 1, 0]
        flags = right[None, None, :, None]
        cache[0].update_and_fetch(flags, flags)
        following = mx.where(right > 0, self._script[at + 1], self._end)
        if not self._speaks:
            return mx.zeros((1, count, self._vocab_size))
        difference = following.astype(mx.float32)
        return mx.stack([difference, mx.zeros_like(difference)], axis=-1)[None]


def chosen(logprobs: mx.array) -> mx.array:
    """The sampler of a scripted model: ``[n, 2]`` log-probabilities to ``[n]`` ids."""
    return mx.round(logprobs[:, 0] - logprobs[:, 1]).astype(mx.int32)
