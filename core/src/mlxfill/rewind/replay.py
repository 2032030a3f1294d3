"""Calling one decoder layer again on the kept part of its own input.

The inputs of a layer at kept positions do not depend on the refused tail, so every
layer can be replayed alone from what the tape recorded.  MLX is lazy: only what the
cache entry needs is computed, no MLP, no output projection, no head.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mlx.core as mx

from mlxfill.errors import ModelError

if TYPE_CHECKING:
    from mlxfill.model.hooks import LayerCall, LayerTrace

HIDDEN_AXES = 3


class Window:
    """The newest window: how many ids it has and what the layers were called with."""

    def __init__(self) -> None:
        """Nothing forwarded yet."""
        self.size = 0
        self.tape: LayerTrace | None = None


class TapedLayer:
    """Finds and repeats the layer call that fed one cache entry."""

    def __init__(self, window: Window, entry: object) -> None:
        """``entry`` is recognised by identity among the arguments of a layer call."""
        self._window = window
        self._entry = entry

    def window(self) -> int:
        """Ids in the newest window."""
        return self._window.size

    def replay(self, keep: int) -> None:
        """Call the layer on its first ``keep`` inputs, of none not at all.

        :raises ModelError: it was not taped.
        """
        call = feeding_call(self._window.tape, self._entry)
        if keep == 0:
            return
        size = self._window.size
        args = tuple(cut(a, keep, size) for a in call.args)
        kwargs = {k: cut(v, keep, size, mask="mask" in k) for k, v in call.kwargs.items()}
        call.layer(*args, **kwargs)


def feeding_call(tape: LayerTrace | None, entry: object) -> LayerCall:
    """The call to repeat: that of the one block that was given the entry, or its layer's.

    A block is cheaper than its layer.  Where several share the entry (time and channel mixing
    of RWKV) only the layer refills all of it.  ``ModelError`` if it was not taped.
    """
    calls = tape.calls if tape else []
    given = [c for c in calls if _was_given((*c.args, *c.kwargs.values()), entry)]
    if not given:
        message = f"no decoder layer was called with this {type(entry).__name__}"
        raise ModelError(message)
    layer, *blocks = given
    return blocks[0] if len(blocks) == 1 else layer


def _was_given(values: tuple[Any, ...], entry: object) -> bool:
    """Whether arguments hold the entry itself, a composite around it, or all of its parts."""
    if any(v is entry for v in values):
        return True
    wholes = [getattr(v, "caches", v) for v in values]
    if any(isinstance(w, list | tuple) and any(p is entry for p in w) for w in wholes):
        return True
    parts = getattr(entry, "caches", ())
    return bool(parts) and all(any(v is p for v in values) for p in parts)


def cut(  # noqa: PLR0911 - one return a shape
    value: Any,  # noqa: ANN401
    keep: int,
    size: int,
    *,
    mask: bool = False,
) -> Any:  # noqa: ANN401
    """``value`` with its window axis (length ``size``) cut to the first ``keep``.

    Knows arrays by shape: hidden states ``[B, S, H]``, padding masks and positions
    ``[B, S]``, attention masks ``[..., S, T + S]`` (both axes lose the tail); containers
    are cut inside; anything else is returned as it is.
    """
    if isinstance(value, tuple | list):
        return type(value)(cut(v, keep, size, mask=mask) for v in value)
    if isinstance(value, dict):
        return {k: cut(v, keep, size, mask=mask) for k, v in value.items()}
    if not isinstance(value, mx.array):
        return value
    is_mask = mask or value.dtype == mx.bool_
    if is_mask and value.ndim >= 2 and value.shape[-2] == size and value.shape[-1] >= size:  # noqa: PLR2004
        return value[..., :keep, : value.shape[-1] - (size - keep)]
    if value.shape[1:2] == (size,):
        return value[:, :keep]
    if value.shape[-1:] == (size,) and value.ndim <= HIDDEN_AXES:
        return value[..., :keep]
    if value.ndim == 2 and value.shape[0] == size:  # noqa: PLR2004
        return value[:keep]
    return value
