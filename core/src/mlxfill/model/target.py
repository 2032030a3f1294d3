"""A bound target: any mlx-lm model behind one small interface."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import mlx.core as mx
from mlx_lm.models.cache import make_prompt_cache

from mlxfill.errors import DrafterError, ModelError, reason
from mlxfill.model import anatomy, hooks
from mlxfill.model.adapters import Adapters
from mlxfill.model.head import alike, some_rows
from mlxfill.model.reading import row

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    import mlx.nn as nn
    from mlx_lm.tokenizer_utils import TokenizerWrapper

PROBE_IDS = (1, 2)


class Target:
    """One mlx-lm model, bound.

    ``split`` says whether hidden states and logits can be had separately; where they
    cannot the model runs whole, which is correct and only forgoes a saving.  ``reason``
    says why not.  ``close()`` gives the model back untouched.
    """

    def __init__(
        self, model: nn.Module, tokenizer: TokenizerWrapper | None = None, path: Path | None = None
    ) -> None:
        """Bind ``model``; probes it with two tokens.  Raises ``ModelError``."""
        self.model = model
        self.adapters = Adapters(model)
        self.path = path
        self._tokenizer: Any = tokenizer
        body = anatomy.find_body(model)
        self.layers = anatomy.find_layers(model, body)
        self.layer_count = len(self.layers)
        caches = self.new_cache()
        self.cache_kinds = frozenset(type(entry) for entry in caches)
        # Where states must be replayed, the innermost module that takes the cache is the cheapest.
        # A body may feed one itself, beside its layers.
        owners = [body, *self.layers] if body else []
        replayed = any(not hasattr(entry, "trim") for entry in caches)
        taped = [*self.layers, *(anatomy.mixers(owners) if replayed else ())]
        self._hooks = hooks.acquire(model, None if body is model else body, taped)
        self._closed = False
        self.split, self.reason = False, "no module owns both an embedding and layers"
        try:
            self._probe(body)
        except BaseException:
            self.close()
            raise

    def _probe(self, body: nn.Module | None) -> None:
        """Compare split and whole on two tokens, to rounding; learn the sizes."""
        ids = mx.array([PROBE_IDS])
        try:
            with self._hooks.capturing() as capture, self.taping() as tape:
                whole = self.forward(ids, self.new_cache())
            mx.eval(whole)
        except Exception as error:
            whose = f"the model {self.path}" if self.path else "the model"
            said = f"{type(error).__name__}: {reason(error)}"
            message = f"{whose} failed on a two-token probe: {said}"
            raise ModelError(message) from error
        self.has_aux_states = self._has_aux_states(tape, ids)
        self.vocab_size = whole.shape[-1]
        self.dtype = whole.dtype
        self.hidden_size = 0
        self.embedding = anatomy.find_embedding(body, self.vocab_size) if body else None
        if body is self.model:
            self.reason = "the model has no head of its own"
        elif body is not None:
            self.split, self.reason = self._probe_split(capture, whole)

    def _has_aux_states(self, tape: hooks.LayerTrace, ids: mx.array) -> frozenset[int]:
        """Layers that answer one ``[B, L, H]`` array."""
        outputs = _outputs(tape)
        answers = [outputs.get(id(layer)) for layer in self.layers]
        return frozenset(
            at
            for at, answer in enumerate(answers)
            if isinstance(answer, mx.array) and answer.shape[:-1] == ids.shape
        )

    def _probe_split(self, capture: hooks.Capture, whole: mx.array) -> tuple[bool, str]:
        try:
            hidden = _hidden(capture)
            self.hidden_size = hidden.shape[-1]
            apart = self.project(hidden)
            last = self.project(hidden[:, -1:])
            if alike(apart, whole) and alike(last, whole[:, -1:]):
                return True, ""
        except Exception as error:  # noqa: BLE001 - whatever a foreign model raises: run it whole
            return False, f"{type(error).__name__}: {error}"
        return False, "logits of split and whole differ"

    # --- forwards ---------------------------------------------------------------

    def new_cache(self, max_kv_size: int | None = None) -> list[Any]:
        """An empty mlx-lm prompt cache for this model."""
        return list(make_prompt_cache(self.model, max_kv_size=max_kv_size))

    def forward(
        self, ids: mx.array, cache: list[Any], embeddings: mx.array | None = None
    ) -> mx.array:
        """``[B, L]`` ids (and ``[B, L, H]`` input embeddings) to ``[B, L, V]`` logits, lazily."""
        logits: mx.array
        if embeddings is None:
            logits = self.model(ids, cache=cache)
        else:
            logits = self.model(ids, cache=cache, input_embeddings=embeddings)
        return logits

    def hidden(self, ids: mx.array, cache: list[Any]) -> mx.array:
        """``[B, L]`` ids to the body's output ``[B, L, H]``; the head is never computed."""
        with self._hooks.capturing() as capture:
            self.model(ids, cache=cache)
        return _hidden(capture)

    def project(self, hidden: mx.array) -> mx.array:
        """``[B, L, H]`` normed hidden states to ``[B, L, V]`` logits of the model's own head."""
        with self._hooks.standing_in(hidden):
            logits: mx.array = self.model(mx.zeros(hidden.shape[:2], mx.int32))
        return logits

    def taping(self, layers: Sequence[int] = ()) -> AbstractContextManager[hooks.LayerTrace]:
        """Record layer calls inside the block: those of ``layers``, none named: of all."""
        return self._hooks.taping([self.layers[i] for i in layers])

    def aux_states(self, tape: hooks.LayerTrace, layers: Sequence[int]) -> mx.array:
        """Outputs of ``layers`` side by side, ``[B, L, n*H]``."""
        outputs = _outputs(tape)
        chosen = [outputs[id(self.layers[i])] for i in layers]
        return mx.concatenate(chosen, axis=-1) if len(chosen) > 1 else chosen[0]

    # --- what drafters may ask ----------------------------------------------------

    @property
    def tokenizer(self) -> TokenizerWrapper:
        """mlx-lm's tokenizer wrapper."""
        tokenizer: TokenizerWrapper = self._tokenizer
        return tokenizer

    def embed(self, ids: mx.array) -> mx.array:
        """``[B, L]`` ids to ``[B, L, H]`` rows of the input embedding."""
        if self.embedding is None:
            message = "this model has no embedding that a drafter could use"
            raise DrafterError(message)
        rows: mx.array = self.embedding(ids)
        return rows

    def head_rows(self, ids: Sequence[int]) -> Callable[[mx.array], mx.array]:
        """A head for the vocabulary rows ``ids`` only: ``[B, L, H]`` to ``[B, L, len(ids)]``."""
        return some_rows(self.model, self.project, self.hidden_size, row(ids))

    def close(self) -> None:
        """Unbind.  The model is as it was before; safe to call twice."""
        self.adapters.switch(None)
        if not self._closed:
            self._closed = True
            hooks.release(self.model)

    def __enter__(self) -> Self:
        """Bind for a ``with`` block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Unbind at its end."""
        self.close()


def _hidden(capture: hooks.Capture) -> mx.array:
    """What the body answered, ``[B, L, H]``."""
    hidden = capture.hidden
    if not isinstance(hidden, mx.array) or hidden.ndim != 3:  # noqa: PLR2004
        message = f"the body answers {type(hidden).__name__}, not one [B, L, H] array"
        raise ModelError(message)
    return hidden


def _outputs(tape: hooks.LayerTrace) -> dict[int, Any]:
    """What layers answered, by their identity; of several things the first."""
    answers = {id(call.layer): call.output for call in tape.calls}
    return {key: each[0] if isinstance(each, tuple) else each for key, each in answers.items()}
