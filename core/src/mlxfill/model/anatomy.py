"""Find body, layers and embedding of any mlx-lm model by looking at its module tree."""

from __future__ import annotations

import inspect
from collections import deque
from typing import TYPE_CHECKING

import mlx.nn as nn

if TYPE_CHECKING:
    from collections.abc import Iterator


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


def has_embedding(module: nn.Module) -> bool:
    """Whether a child of ``module`` is an embedding."""
    return any(is_embedding(child) for child in module.children().values())


def find_body(model: nn.Module) -> nn.Module | None:
    """The first module, breadth first, that owns both an embedding and a list of layers.

    Where there is none, one of the two may lie further down.
    """
    modules = list(_breadth_first(model))
    listed = [m for m in modules if layer_lists(m)]
    embedding = [m for m in modules if has_embedding(m)]
    both = [m for m in listed if has_embedding(m)]
    above = [m for m in embedding if any(layer_lists(each) for each in _breadth_first(m))]
    beside = [m for m in listed if any(has_embedding(each) for each in _breadth_first(m))]
    return next(iter([*both, *above, *beside]), None)


def _breadth_first(model: nn.Module) -> Iterator[nn.Module]:
    """``model`` and the modules below it that are in no list."""
    queue: deque[nn.Module] = deque([model])
    while queue:
        module = queue.popleft()
        yield module
        queue.extend(c for c in module.children().values() if isinstance(c, nn.Module))


def find_layers(model: nn.Module, body: nn.Module | None) -> list[nn.Module]:
    """The decoder layers in order: what mlx-lm's models call ``layers``, else the body's lists."""
    named = getattr(model, "layers", None)
    if isinstance(named, list | tuple) and any(isinstance(m, nn.Module) for m in named):
        return [m for m in named if isinstance(m, nn.Module)]
    return [layer for part in layer_lists(body) for layer in part] if body else []


def mixers(owners: list[nn.Module]) -> list[nn.Module]:
    """Children of ``owners`` that take a cache: attention, state-space and convolution blocks.

    Not those that hold the layers themselves.
    """
    children = (c for owner in owners for c in owner.children().values())
    blocks = [c for c in children if isinstance(c, nn.Module) and takes_cache(c)]
    return [b for b in blocks if not any(takes_cache(m) for part in layer_lists(b) for m in part)]


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
