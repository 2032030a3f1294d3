"""Layers of Qwen3 in which a block reads the target's states as keys and values.

In each layer the same projections make keys and values of the context (states of the target, alike
for all layers) and of the block's own slots; only those of the context stay in the cache.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models.qwen3 import MLP
from mlx_lm.models.rope_utils import initialize_rope

if TYPE_CHECKING:
    from mlxfill_spec_dflash.config import DrafterConfig


class Window:
    """Where the fresh context and the block of each row go in a cache.

    Row b writes ``counts[b]`` states behind what its cache holds, then its block, then what
    only fills up the array.
    """

    def __init__(self, order: mx.array, counts: mx.array, start: Any, size: int) -> None:  # noqa: ANN401
        """``order`` ``[B, M + size]``: which of M states and ``size`` slots go where, in this
        order; ``start``: tokens that the cache holds, a number or ``[B]``.
        """
        self.start, self.size = start, size
        self.anchor = start + counts
        self._order = order[..., None]
        self._masks: dict[object, mx.array] = {}

    def ordered(self, context: mx.array, block: mx.array) -> mx.array:
        """``[B, M, H]`` and ``[B, size, H]`` to what is written, ``[B, M + size, H]``."""
        both = mx.concatenate([context, block], axis=1)
        return mx.take_along_axis(both, self._order, axis=1)

    def mask(self, slots: int, *, causal: bool, window: int | None) -> mx.array:
        """``[B, 1, size, slots]``: what each slot of the block sees of a cache."""
        key = slots, causal, window
        if key not in self._masks:
            at = mx.arange(slots)
            query = (self.anchor[:, None] + mx.arange(self.size))[:, None, :, None]
            end = query if causal else (self.anchor + self.size - 1)[:, None, None, None]
            seen = mx.broadcast_to(at <= end, (*query.shape[:3], slots))
            self._masks[key] = seen if window is None else seen & (query - at < window)
        return self._masks[key]


class Attention(nn.Module):
    """Queries of the block; keys and values of context and block."""

    def __init__(self, config: DrafterConfig, number: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        size, dim, bias = config.hidden_size, config.head_dim, config.attention_bias
        self.q_proj = nn.Linear(size, config.heads * dim, bias=bias)
        self.k_proj = nn.Linear(size, config.kv_heads * dim, bias=bias)
        self.v_proj = nn.Linear(size, config.kv_heads * dim, bias=bias)
        self.o_proj = nn.Linear(config.heads * dim, size, bias=bias)
        self.q_norm = nn.RMSNorm(dim, eps=config.norm_eps)
        self.k_norm = nn.RMSNorm(dim, eps=config.norm_eps)
        self.rope = initialize_rope(dim, **config.rope)
        if config.sinks:
            self.attention_sink_bias = mx.zeros((config.heads,))
        self._dim, self._causal = dim, config.causal[number]
        self._window = config.windows[number]

    def remember(self, context: mx.array, cache: Any, start: Any) -> tuple[mx.array, mx.array]:  # noqa: ANN401
        """Write ``[B, L, H]`` states behind the ``start`` tokens of a cache; all that it holds."""
        keys = self.rope(self.k_norm(self._heads(self.k_proj(context))), offset=start)
        return cast(
            "tuple[mx.array, mx.array]",
            cache.update_and_fetch(keys, self._heads(self.v_proj(context))),
        )

    def __call__(self, x: mx.array, context: mx.array, window: Window, cache: Any) -> mx.array:  # noqa: ANN401
        """``[B, S, H]`` of the block and ``[B, M, H]`` fresh context to ``[B, S, H]``."""
        keys, values = self.remember(window.ordered(context, x), cache, window.start)
        queries = self.rope(self.q_norm(self._heads(self.q_proj(x))), offset=window.anchor)
        out = mx.fast.scaled_dot_product_attention(
            queries,
            keys,
            values,
            scale=self._dim**-0.5,
            mask=window.mask(keys.shape[2], causal=self._causal, window=self._window),
            sinks=self.get("attention_sink_bias"),
        )
        return self.o_proj(out.swapaxes(1, 2).flatten(-2))

    def _heads(self, x: mx.array) -> mx.array:
        """``[B, L, heads * D]`` to ``[B, heads, L, D]``."""
        return mx.unflatten(x, -1, (-1, self._dim)).swapaxes(1, 2)


class Convolution(nn.Module):
    """DFlash2's causal convolution before and after a part of a layer.

    Its kernels are weights plus what the states themselves ask for, one number a group of channels.
    """

    def __init__(self, config: DrafterConfig) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._groups = config.hidden_size // config.group_size
        self._taps = config.kernel_size
        self.base_kernel = mx.zeros((2, self._taps, config.hidden_size))
        self.kernel_projection = nn.Linear(
            config.hidden_size, 2 * self._taps * self._groups, bias=False
        )

    def before(self, x: mx.array) -> tuple[mx.array, mx.array]:
        """``[B, S, H]`` to the same convolved, and the kernels ``[B, S, taps, groups]`` after."""
        kernels = mx.unflatten(self.kernel_projection(x), -1, (2, self._taps, self._groups))
        return self._convolved(x, kernels[..., 0, :, :], 0), kernels[..., 1, :, :]

    def after(self, x: mx.array, kernels: mx.array) -> mx.array:
        """``[B, S, H]`` to the same convolved."""
        return self._convolved(x, kernels, 1)

    def _convolved(self, x: mx.array, kernels: mx.array, which: int) -> mx.array:
        """Tap t of the kernel reads the slot t before."""
        channels = mx.unflatten(x, -1, (self._groups, -1))
        base = mx.unflatten(self.base_kernel[which].astype(x.dtype), -1, (self._groups, -1))
        size = x.shape[1]
        padded = mx.pad(channels, [(0, 0), (self._taps - 1, 0), (0, 0), (0, 0)])
        first = self._taps - 1
        return sum(
            (
                (base[tap] + kernels[:, :, tap, :, None])
                * padded[:, first - tap : first - tap + size]
                for tap in range(self._taps)
            ),
            start=mx.zeros_like(channels),
        ).flatten(-2)


class Layer(nn.Module):
    """A decoder layer; DFlash2's has convolutions around attention and MLP."""

    def __init__(self, config: DrafterConfig, number: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        size = config.hidden_size
        self.self_attn = Attention(config, number)
        self.mlp = MLP(size, config.intermediate_size)
        self.input_layernorm = nn.RMSNorm(size, eps=config.norm_eps)
        self.post_attention_layernorm = nn.RMSNorm(size, eps=config.norm_eps)
        self._convolves = config.method == "dflash2"
        if self._convolves:
            self.attention_conv, self.mlp_conv = Convolution(config), Convolution(config)

    def __call__(self, x: mx.array, context: mx.array, window: Window, cache: Any) -> mx.array:  # noqa: ANN401
        """``[B, S, H]`` of the block and ``[B, M, H]`` fresh context to ``[B, S, H]``."""
        h = self.input_layernorm(x)
        if not self._convolves:
            h = x + self.self_attn(h, context, window, cache)
            return h + self.mlp(self.post_attention_layernorm(h))
        h, kernels = self.attention_conv.before(h)
        x += self.attention_conv.after(self.self_attn(h, context, window, cache), kernels)
        h, kernels = self.mlp_conv.before(self.post_attention_layernorm(x))
        return x + self.mlp_conv.after(self.mlp(h), kernels)
