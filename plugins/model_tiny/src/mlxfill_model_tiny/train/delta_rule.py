"""The gated delta rule, parallel over chunks of the sequence.  Training only.

Gated DeltaNet: Yang, Kautz, Hatamizadeh 2024, arXiv 2412.06464.  The chunked form, with
the inverse of a unit lower triangular matrix, follows Yang et al. 2024, arXiv 2406.06484.
It computes what mlx-lm's step-by-step code does, to rounding, about 12 times faster on a
CPU.
"""

from __future__ import annotations

import mlx.core as mx
import mlx.nn as nn

from mlxfill_model_tiny.train.fast_math import exp, with_gradient

CHUNK = 32
"""Tokens that are solved together; a longer sequence must be a multiple of it."""

_NEVER = -40.0
"""The logarithm of a decay that counts as zero."""


def _inverse_gradient(_: mx.array, cotangent: mx.array, inverse: mx.array) -> mx.array:
    transposed = inverse.swapaxes(-1, -2)
    return -mx.tril(transposed @ cotangent @ transposed, -1)


@with_gradient(_inverse_gradient)
def _unit_lower_inverse(matrix: mx.array) -> mx.array:
    """Invert ``[..., C, C]`` with ones on the diagonal and zeros above it."""
    return mx.linalg.tri_inv(matrix, upper=False, stream=mx.cpu)


def chunked_gated_delta(  # noqa: PLR0913, PLR0917 - the signature of the function it stands in for
    q: mx.array,
    k: mx.array,
    v: mx.array,
    a: mx.array,
    b: mx.array,
    a_log: mx.array,
    dt_bias: mx.array,
    *_no_state_no_mask: None,
    use_kernel: bool = False,  # noqa: ARG001
) -> tuple[mx.array, mx.array]:
    """Stand in for ``mlx_lm.models.gated_delta.gated_delta_update`` from an empty state.

    For each token: ``S <- g S``, ``u = beta (v - S k)``, ``S <- S + u k^T``, ``y = S q``
    with ``beta = sigmoid(b)`` and ``g = exp(-exp(a_log) softplus(a + dt_bias))``.

    :param q: ``[B, T, H, Dk]`` float32, as ``k``; ``v`` is ``[B, T, H, Dv]``.
    :param a: ``[B, T, H]``, as ``b``; ``a_log`` and ``dt_bias`` are ``[H]``.
    :returns: ``y`` ``[B, T, H, Dv]`` and the last ``S`` ``[B, H, Dv, Dk]``.
    """
    batch, length, heads, value_size = v.shape
    chunk = min(CHUNK, length)

    def chunked(x: mx.array) -> mx.array:
        """``[B, T, H, D]`` to ``[B, H, T / C, C, D]``."""
        return x.reshape(batch, length // chunk, chunk, heads, -1).transpose(0, 3, 1, 2, 4)

    beta = chunked(mx.sigmoid(b)[..., None])
    log_decay = -mx.exp(a_log) * nn.softplus(a + dt_bias)
    y, state = _scan(chunked(q), chunked(k), chunked(v), beta, chunked(log_decay[..., None]))
    y = y.transpose(0, 2, 3, 1, 4).reshape(batch, length, heads, value_size)
    return y, state.swapaxes(-1, -2)


def _scan(
    q: mx.array, k: mx.array, v: mx.array, beta: mx.array, log_decay: mx.array
) -> tuple[mx.array, mx.array]:
    """All ``[B, H, N, C, D]``; everything but the state itself is done for all chunks at once."""
    size = q.shape[-2]
    total = mx.cumsum(log_decay, axis=-2)  # [B, H, N, C, 1]
    causal = mx.tril(mx.ones((size, size), dtype=mx.bool_))
    between = exp(mx.where(causal, total - total.swapaxes(-1, -2), _NEVER))  # decay from j to i
    k_transposed = k.swapaxes(-1, -2)
    coupling = mx.tril(beta * (k @ k_transposed) * between, -1)
    solve = _unit_lower_inverse(mx.eye(size) + coupling)
    decay = mx.exp(total)
    new_values = solve @ (beta * v)
    seen_by_state = solve @ (beta * decay * k)
    scores = mx.tril((q @ k_transposed) * between)
    queries = q * decay
    keys = (k * mx.exp(total[..., -1:, :] - total)).swapaxes(-1, -2)  # [B, H, N, Dk, C]
    whole = decay[..., -1:, :]
    state = mx.zeros((*q.shape[:2], q.shape[-1], v.shape[-1]))  # [B, H, Dk, Dv]
    outputs = []
    for n in range(q.shape[2]):
        update = new_values[:, :, n] - seen_by_state[:, :, n] @ state
        outputs.append(queries[:, :, n] @ state + scores[:, :, n] @ update)
        state = whole[:, :, n] * state + keys[:, :, n] @ update
    return mx.stack(outputs, axis=2), state
