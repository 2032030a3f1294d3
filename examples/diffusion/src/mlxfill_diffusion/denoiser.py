"""Generation by iterative unmasking.

A block of mask tokens is appended to the prompt.  Each forward looks at all of it in both
directions, guesses every masked token, and settles those that it is sure of.  What is settled from
the left on without a gap is handed out at once.  When a block is settled, the next one follows.

Sources: MaskGIT (Chang et al. 2022) for settling by confidence, LLaDA (Nie et al. 2025) for text
and for blocks, Fast-dLLM (Wu et al. 2025) for a threshold instead of a number of steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import attrs
import mlx.core as mx

from mlxfill import InputError, Sampling
from mlxfill_diffusion.attention import BothWays

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mlxfill import Request, TargetView
    from mlxfill_diffusion.settings import DiffusionSettings

ORIGIN = "denoised"
KNOWN = {"temperature", "seed"}
"""The fields of ``Sampling`` that mean something here."""


class Denoiser:
    """A ``mlxfill.GenerationMethod``."""

    name = "diffusion"

    def __init__(
        self, target: TargetView, mask: int, block: int, settings: DiffusionSettings
    ) -> None:
        """``mask``: id of the mask token.  ``block``: tokens that are unmasked together."""
        self._target, self._mask, self._block = target, mask, block
        self._threshold = settings.threshold
        self._attention: list[Any] = [BothWays()] * target.layer_count

    def generate(self, request: Request) -> Iterator[list[tuple[int, str]]]:
        """Blocks, until nobody asks any more or the context is full.

        :raises InputError: the sampling has more to it than temperature and seed.
        """
        _check(request.sampling)
        ids, context = list(request.prompt_ids), request.limits.context
        while context is None or len(ids) < context:
            start = len(ids)
            room = self._block if context is None else min(self._block, context - start)
            ids += [self._mask] * room
            yield from self._unmasked(ids, start, request.sampling)

    def _unmasked(
        self, ids: list[int], start: int, sampling: Sampling
    ) -> Iterator[list[tuple[int, str]]]:
        """Settle ``ids`` from ``start`` on, in place; for each forward what can be handed out."""
        noise = self._noise(len(ids) - start, start, sampling)
        shown = start
        while shown < len(ids):
            tokens, sure = self._guess(ids, start, noise)
            masked = [at for at in range(shown, len(ids)) if ids[at] == self._mask]
            surest = max(masked, key=lambda at: sure[at - start])
            for at in masked:
                if at == surest or sure[at - start] >= self._threshold:
                    ids[at] = tokens[at - start]
            last, shown = shown, next((at for at in masked if ids[at] == self._mask), len(ids))
            yield [(token, ORIGIN) for token in ids[last:shown]]

    def _guess(
        self, ids: list[int], start: int, noise: mx.array | None
    ) -> tuple[list[int], list[float]]:
        """A choice for each id from ``start`` on, and the probability that the model gives it."""
        logits = self._target.forward(mx.array([ids]), self._attention)[0, start:]
        logits = logits.astype(mx.float32)
        logits[:, self._mask] = -mx.inf
        chosen = mx.argmax(logits if noise is None else logits + noise, axis=-1, keepdims=True)
        sure = mx.take_along_axis(mx.softmax(logits, axis=-1), chosen, axis=-1)
        mx.eval(chosen, sure)
        return cast("list[int]", chosen[:, 0].tolist()), cast("list[float]", sure[:, 0].tolist())

    def _noise(self, count: int, start: int, sampling: Sampling) -> mx.array | None:
        """Gumbel noise ``[count, V]`` for drawing at the temperature; a place keeps its own.

        It depends on seed and place alone, so a reply does not depend on how many forwards it took
        to get there.
        """
        if sampling.greedy:
            return None
        key = mx.random.key((sampling.seed or 0) + start)
        noise = mx.random.gumbel((count, self._target.vocab_size), key=key)
        return noise * sampling.temperature


def _check(sampling: Sampling) -> None:
    """Raise ``InputError`` for what unmasking cannot do."""
    for field in attrs.fields(Sampling):
        value = getattr(sampling, field.name)
        if field.name not in KNOWN and value != field.default:
            raise InputError(
                f"{field.name} {value!r}: generation by diffusion knows temperature and seed only"
            )
