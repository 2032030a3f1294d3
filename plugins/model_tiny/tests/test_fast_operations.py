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
Rule = Callable[..., tuple[mx.array, mx.array]]


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


def exact_rule(*inputs: mx.array) -> tuple[mx.array, mx.array]:
    outputs: tuple[mx.array, mx.array] = gated_delta_update(*inputs, use_kernel=False)
    return outputs


def gradients(rule: Rule, inputs: list[mx.array]) -> list[mx.array]:
    def total(*inputs: mx.array) -> mx.array:
        output, state = rule(*inputs)
        return mx.sin(output).sum() + mx.sin(state).sum()

    of_all: Callable[..., list[mx.array]] = mx.grad(total, argnums=list(range(len(inputs))))
    return of_all(*inputs)


@pytest.mark.parametrize("length", [1, CHUNK, 3 * CHUNK])
def test_the_chunked_delta_rule_equals_the_recurrence(length: int) -> None:
    directions = [normal(seed, 2, length, 3, 8) for seed in (0, 1)]
    q, k = (x / mx.linalg.norm(x, axis=-1, keepdims=True) for x in directions)
    v, a, b = normal(2, 2, length, 3, 4), normal(3, 2, length, 3), normal(4, 2, length, 3)
    inputs = [q, k, v, a, b, normal(5, 3), normal(6, 3)]
    fast: Rule = chunked_gated_delta
    pairs = [
        *zip(fast(*inputs), exact_rule(*inputs), strict=True),
        *zip(gradients(fast, inputs), gradients(exact_rule, inputs), strict=True),
    ]
    for actual, expected in pairs:
        assert actual.shape == expected.shape
        assert mx.allclose(actual, expected, rtol=1e-3, atol=1e-4)


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
