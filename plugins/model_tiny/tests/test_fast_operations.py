from __future__ import annotations

from collections.abc import Callable

import mlx.core as mx
import mlx.nn as nn
import pytest
from mlx_lm.models import qwen3, qwen3_5
from mlx_lm.models.gated_delta import gated_delta_update

from mlxfill_model_tiny.train import fast_math
from mlxfill_model_tiny.train.delta_rule import CHUNK, chunked_gated_delta
from mlxfill_model_tiny.train.fast_layers import fast_training

Function = Callable[[mx.array], mx.array]


def normal(seed: int, *shape: int) -> mx.array:
    return mx.random.normal(shape, key=mx.random.key(seed))


@pytest.mark.parametrize(
    ("fast", "exact"),
    [
        (fast_math.exp, mx.exp),
        (fast_math.sigmoid, mx.sigmoid),
        (fast_math.silu, nn.silu),
        (fast_math.softmax, lambda x: mx.softmax(x, -1)),
        (fast_math.logsumexp, lambda x: mx.logsumexp(x, -1)),
        (lambda x: fast_math.swiglu(x, x + 1), lambda x: nn.silu(x) * (x + 1)),
    ],
    ids=["exp", "sigmoid", "silu", "softmax", "logsumexp", "swiglu"],
)
def test_values_and_gradients_are_those_of_mlx(fast: Function, exact: Function) -> None:
    x = 3 * normal(0, 4, 16)
    weight = normal(1, *exact(x).shape)

    def gradient(function: Function) -> mx.array:
        of_sum: Function = mx.grad(lambda x: (function(x) * weight).sum())
        return of_sum(x)

    assert mx.allclose(fast(x), exact(x), rtol=1e-4, atol=1e-5)
    assert mx.allclose(gradient(fast), gradient(exact), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("length", [1, CHUNK, 4 * CHUNK])
def test_the_chunked_delta_rule_equals_the_recurrence(length: int) -> None:
    q, k = normal(0, 2, length, 3, 8), normal(1, 2, length, 3, 8)
    q, k = (x / mx.linalg.norm(x, axis=-1, keepdims=True) for x in (q, k))
    v, a, b = normal(2, 2, length, 3, 4), normal(3, 2, length, 3), normal(4, 2, length, 3)
    a_log, dt_bias = normal(5, 3), normal(6, 3)
    expected = gated_delta_update(q, k, v, a, b, a_log, dt_bias, use_kernel=False)
    actual = chunked_gated_delta(q, k, v, a, b, a_log, dt_bias, None, None)
    for one, other in zip(actual, expected, strict=True):
        assert one.shape == other.shape
        assert mx.allclose(one, other, rtol=1e-4, atol=1e-5)


def in_the_middle_of_training() -> None:
    with fast_training():
        assert mx.sigmoid is fast_math.sigmoid
        assert qwen3_5.gated_delta_update is chunked_gated_delta
        raise RuntimeError("in the middle")


def test_training_puts_the_original_operations_back() -> None:
    originals = (mx.sigmoid, nn.silu, nn.Conv1d.__call__, qwen3.swiglu)
    delta_rule = qwen3_5.gated_delta_update
    with pytest.raises(RuntimeError, match="in the middle"):
        in_the_middle_of_training()
    assert (mx.sigmoid, nn.silu, nn.Conv1d.__call__, qwen3.swiglu) == originals
    assert qwen3_5.gated_delta_update is delta_rule
