"""Whether a model's sliding windows are as wide for several ids as for one."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import mlx.core as mx
from mlx_lm.models.cache import RotatingKVCache

from mlxfill.rewind.entries import flat

if TYPE_CHECKING:
    from mlxfill.model.target import Target


def wider_than_ring(target: Target) -> str:
    """Why ids that are forwarded together would see more than one by one; "" if they would not.

    One id sees what its ring holds.  Several see as far back as the mask that the model asks for,
    which differs only when the ring has wrapped: no trial with a few ids would notice.  So it is
    the asking that is looked at; nothing is computed.
    """
    found: list[str] = []
    caches = target.new_cache()
    for entry in flat(caches):
        if isinstance(entry, RotatingKVCache):
            vars(entry)["make_mask"] = partial(_noted, found, entry)
    target.forward(mx.array([[1, 2]]), caches)
    return found[0] if found else ""


def _noted(
    found: list[str],
    ring: RotatingKVCache,
    N: int,  # noqa: N803 - mlx-lm's name
    window_size: int | None = None,
    **more: Any,  # noqa: ANN401
) -> Any:  # noqa: ANN401 - an array or a word
    if window_size is not None and window_size > ring.max_size:
        found.append(
            f"ids forwarded together see {window_size} tokens, one alone sees the"
            f" {ring.max_size} of its ring"
        )
    return RotatingKVCache.make_mask(ring, N, window_size, **more)
