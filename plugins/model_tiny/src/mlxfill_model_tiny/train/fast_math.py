"""Elementwise functions with gradients that vectorise on a CPU.  Training only.

MLX evaluates ``exp`` (so also sigmoid, silu and softmax) one element at a time on x86.
A polynomial and eight squarings, fused by ``mx.compile``, run 8 to 14 times faster at
a relative error near 1e-5.  All functions take and return float32 arrays of any shape.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar, cast

import mlx.core as mx

Function = TypeVar("Function", bound=Callable[..., mx.array])

_fused = partial(mx.compile, shapeless=True)


def _exp(x: mx.array) -> mx.array:
    """``exp(x) = exp(x / 256) ** 256``, clipped to |x| <= 40."""
    y = mx.clip(x, -40.0, 40.0) * (1 / 256)
    p = 1 + y * (1 + y * (0.5 + y * (1 / 6 + y * (1 / 24))))
    for _ in range(8):
        p = p * p
    return p


@_fused
def _exp_value(x: mx.array) -> mx.array:
    return _exp(x)


@_fused
def _sigmoid_value(x: mx.array) -> mx.array:
    return 1 / (1 + _exp(-x))


@_fused
def _sigmoid_gradient(cotangent: mx.array, value: mx.array) -> mx.array:
    return cotangent * value * (1 - value)


@_fused
def _silu_value(x: mx.array) -> mx.array:
    return x / (1 + _exp(-x))


@_fused
def _silu_gradient(cotangent: mx.array, x: mx.array) -> mx.array:
    gate = 1 / (1 + _exp(-x))
    return cotangent * gate * (1 + x * (1 - gate))


@_fused
def _swiglu_value(gate: mx.array, x: mx.array) -> mx.array:
    return gate * x / (1 + _exp(-gate))


@_fused
def _swiglu_gradient(cotangent: mx.array, gate: mx.array, x: mx.array) -> tuple[mx.array, mx.array]:
    opened = 1 / (1 + _exp(-gate))
    return cotangent * x * opened * (1 + gate * (1 - opened)), cotangent * gate * opened


def with_gradient(
    gradient: Callable[[Any, mx.array, mx.array], Any],
) -> Callable[[Function], Function]:
    """Give the decorated function its own gradient.

    :param gradient: takes the argument (a tuple where there are several), the gradient of
        the value and the value; returns the gradient of each argument.
    """

    def decorated(function: Function) -> Function:
        custom = mx.custom_function(function)
        custom.vjp(gradient)
        return cast("Function", custom)

    return decorated


@with_gradient(lambda _, cotangent, value: cotangent * value)
def exp(x: mx.array) -> mx.array:
    """``e ** x`` for |x| <= 40."""
    return _exp_value(x)


@with_gradient(lambda _, cotangent, value: _sigmoid_gradient(cotangent, value))
def sigmoid(x: mx.array) -> mx.array:
    """``1 / (1 + e ** -x)``."""
    return _sigmoid_value(x)


@with_gradient(lambda x, cotangent, _: _silu_gradient(cotangent, x))
def silu(x: mx.array) -> mx.array:
    """``x * sigmoid(x)``."""
    return _silu_value(x)


@with_gradient(lambda arguments, cotangent, _: _swiglu_gradient(cotangent, *arguments))
def swiglu(gate: mx.array, x: mx.array) -> mx.array:
    """``silu(gate) * x`` (Shazeer 2020, arXiv 2002.05202)."""
    return _swiglu_value(gate, x)


@with_gradient(
    lambda _, cotangent, value: value * (cotangent - (cotangent * value).sum(-1, keepdims=True))
)
def softmax(x: mx.array) -> mx.array:
    """Softmax over the last axis."""
    powers = _exp_value(x - x.max(-1, keepdims=True))
    return powers * (1 / powers.sum(-1, keepdims=True))


@with_gradient(lambda x, cotangent, value: cotangent[..., None] * _exp_value(x - value[..., None]))
def logsumexp(x: mx.array) -> mx.array:
    """``log(sum(e ** x))`` over the last axis, which disappears."""
    peak = x.max(-1, keepdims=True)
    return (peak + mx.log(_exp_value(x - peak).sum(-1, keepdims=True))).squeeze(-1)
