"""A head for some ids gives what the whole head gives for them, at their cost where it can."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import mlx.nn as nn
import pytest

from mlxfill.model.target import Target
from mlxfill_testing import VOCAB, shared_model, tiny_model

ROWS = [3, 7, 20, 21, 63]
KINDS: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen3": {"tie_word_embeddings": False},
    "qwen3_5": {"tie_word_embeddings": False},
    "phi3": {},
    "gemma2": {},
    "cohere2": {},
    "granite": {},
    "gpt2": {},
}
CAPPED_OR_SCALED = {"gemma2", "cohere2", "granite"}


def check(model: Any, *, narrow: bool) -> None:
    with Target(model) as target:
        hidden = mx.random.normal((2, 3, target.hidden_size), key=mx.random.key(1))
        projected: list[tuple[int, ...]] = []
        project = target.project

        def counted(states: mx.array) -> mx.array:
            projected.append(states.shape)
            return project(states)

        target.project = counted  # type: ignore[method-assign, assignment]
        head = target.head_rows(ROWS)
        projected.clear()
        ours = head(hidden)
        assert (projected == []) == narrow
        theirs = mx.take(project(hidden), mx.array(ROWS), axis=-1)
        assert ours.shape == (2, 3, len(ROWS))
        assert mx.allclose(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_plain_heads_use_their_rows_only(kind: str) -> None:
    check(shared_model(kind, **KINDS[kind]), narrow=kind not in CAPPED_OR_SCALED)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("bits", [4, 8])
def test_quantized_heads_too(bits: int, *, tied: bool) -> None:
    model = tiny_model("llama", tie_word_embeddings=tied)
    nn.quantize(model, group_size=32, bits=bits)
    check(model, narrow=True)


def test_a_head_with_a_bias_keeps_it() -> None:
    model = tiny_model("llama", tie_word_embeddings=False)
    model.lm_head.bias = mx.arange(VOCAB).astype(mx.float32)
    check(model, narrow=True)
