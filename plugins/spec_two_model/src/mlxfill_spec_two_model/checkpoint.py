"""A draft cache as tensors and words, and back."""

from __future__ import annotations

import copy
import json
from typing import Any, cast

import mlx.core as mx
from mlx.utils import tree_flatten, tree_unflatten

from mlxfill import DraftCheckpoint, DrafterError

_STATE = "state"
"""Metadata key: a JSON object of which arrays belong to the caches' state, and of what else."""
_ARRAYS, _REST, _HELD = "arrays", "rest", "held"


def saved(namespace: str, processed: int, cache: list[Any]) -> DraftCheckpoint:
    """The state of ``cache``, evaluated and owned."""
    leaves = cast("list[tuple[str, Any]]", tree_flatten([entry.state for entry in cache]))
    arrays = {path: copy.copy(leaf) for path, leaf in leaves if isinstance(leaf, mx.array)}
    rest = {path: leaf for path, leaf in leaves if path not in arrays}
    mx.eval(arrays)
    content = {_ARRAYS: sorted(arrays), _REST: rest, _HELD: processed}
    return DraftCheckpoint(namespace, processed, arrays, {_STATE: json.dumps(content)})


def restore(checkpoint: DraftCheckpoint, namespace: str, cache: list[Any]) -> None:
    """Give the fresh ``cache`` the state of a checkpoint, which stays as it is.

    :raises DrafterError: it belongs to another drafter, or does not hold what it says.
    """
    if checkpoint.namespace != namespace:
        raise DrafterError(
            f"the checkpoint is of drafter {checkpoint.namespace!r}, this one is {namespace!r}:"
            " mount the drafter that made it"
        )
    try:
        content = json.loads(checkpoint.metadata[_STATE])
        arrays = {path: copy.copy(checkpoint.tensors[path]) for path in content[_ARRAYS]}
        states = tree_unflatten(list({**arrays, **content[_REST]}.items()))
        for entry, state in zip(cache, states, strict=True):
            entry.state = state
        held = content[_HELD]  # recurrent states do not count their tokens
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise DrafterError(
            f"the checkpoint of drafter {namespace!r} does not hold its caches: make it anew"
        ) from error
    if held != checkpoint.processed_tokens:
        raise DrafterError(
            f"the checkpoint of drafter {namespace!r} says {checkpoint.processed_tokens} processed"
            f" tokens, its caches hold {held}: make it anew"
        )
