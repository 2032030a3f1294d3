"""The state of a row as tensors, and back."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import mlx.core as mx

from mlxfill import DraftCheckpoint, DrafterError

if TYPE_CHECKING:
    from mlx_lm.models.cache import KVCache

    from mlxfill_spec_qwen_mtp.chain import Chain

_STATE = "state"


def saved(namespace: str, chain: Chain) -> DraftCheckpoint:
    """Keys and values ``[1, heads, rows, D]`` of each layer and the waiting state ``[1, 1, H]``."""
    if not chain.processed:
        return DraftCheckpoint(namespace, 0, {})
    chain.catch_up()
    tensors = {_STATE: copy.copy(chain.state)}
    for number, entry in enumerate(chain.cache):
        if entry.keys is not None:
            keys, values = entry.keys_and_values()
            tensors |= {f"keys.{number}": copy.copy(keys), f"values.{number}": copy.copy(values)}
    mx.eval(tensors)
    return DraftCheckpoint(namespace, chain.processed, tensors)


def restored(checkpoint: DraftCheckpoint, namespace: str, cache: list[KVCache]) -> mx.array | None:
    """Fill the fresh ``cache`` from a checkpoint, which stays as it is.

    :returns: the waiting state ``[1, 1, H]``; None for a row that had processed nothing.
    :raises DrafterError: it belongs to another drafter, or does not hold what it says.
    """
    if checkpoint.namespace != namespace:
        raise DrafterError(
            f"the checkpoint is of drafter {checkpoint.namespace!r}, this one is {namespace!r}:"
            " mount the drafter that made it"
        )
    if not checkpoint.processed_tokens:
        return None
    tensors, rows = checkpoint.tensors, checkpoint.processed_tokens - 1
    for number, entry in enumerate(cache if rows else []):
        keys, values = tensors.get(f"keys.{number}"), tensors.get(f"values.{number}")
        found = 0 if keys is None else keys.shape[2]
        if keys is None or values is None or found != rows:
            raise DrafterError(
                f"the checkpoint of drafter {namespace!r} holds {found} rows for"
                f" {checkpoint.processed_tokens} processed tokens: make it anew"
            )
        entry.state = (copy.copy(keys), copy.copy(values), rows)
    if _STATE not in tensors:
        raise DrafterError(f"the checkpoint of drafter {namespace!r} holds no state: make it anew")
    return tensors[_STATE]
