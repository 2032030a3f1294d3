"""Find body, layers and embedding of any mlx-lm model by looking at its module tree."""

from __future__ import annotations

import inspect
from collections import deque

import mlx.nn as nn


def is_embedding(module: object) -> bool:
    """Dense, quantized and adapted embeddings alike."""
    return isinstance(module, nn.Module) and "Embedding" in type(module).__name__


def layer_lists(module: nn.Module) -> list[list[nn.Module]]:
    """Children of ``module`` that are lists of modules."""
    lists = (v for v in module.children().values() if isinstance(v, list | tuple))
    return [
        [m for m in each if isinstance(m, nn.Module)]
        for each in lists
        if any(isinstance(m, nn.Module) for m in each)
    ]


def find_body(model: nn.Module) -> nn.Module | None:
    """The first module, breadth first, that owns both an embedding and a list of layers."""
    queue: deque[nn.Module] = deque([model])
    while queue:
        module = queue.popleft()
        children = module.children().values()
        if layer_lists(module) and any(is_embedding(c) for c in children):
            return module
        queue.extend(c for c in children if isinstance(c, nn.Module))
    return None


def mixers(owners: list[nn.Module]) -> list[nn.Module]:
    """Children of ``owners`` that take a cache: attention, state-space and convolution blocks."""
    children = (c for owner in owners for c in owner.children().values())
    return [c for c in children if isinstance(c, nn.Module) and takes_cache(c)]


def takes_cache(module: nn.Module) -> bool:
    """Whether a module's call has a parameter named ``cache``."""
    try:
        return "cache" in inspect.signature(type(module).__call__).parameters
    except (TypeError, ValueError):
        return False


def find_embedding(body: nn.Module, vocab_size: int) -> nn.Module | None:
    """The body's token embedding: the one whose rows are nearest to the vocabulary.

    None where the body has no plain table: rows may depend on the ids before.
    """
    tables = [c for c in body.children().values() if is_embedding(c) and "weight" in c]
    return min(tables, key=lambda t: abs(t.weight.shape[0] - vocab_size), default=None)
