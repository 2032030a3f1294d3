"""Starting a request from caches that already hold the beginning of its prompt."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from attrs import define
from mlx_lm.models.cache import ArraysCache, CacheList

from mlxfill.errors import CacheMismatchError
from mlxfill.request.results import PromptCache
from mlxfill.rewind.entries import flat

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlxfill.contracts import DraftCheckpoint
    from mlxfill.model.target import Target


@define
class PrefilledCache:
    """Caches of one request's own that hold ``count`` tokens, ``unnamed`` ones included.

    ``draft``: the drafter's state after as many tokens, where there is one.  ``kept``: an earlier
    request left them.
    """

    caches: list[Any]
    count: int
    unnamed: int = 0
    draft: DraftCheckpoint | None = None
    kept: bool = False


def own_caches(
    target: Target,
    given: PromptCache | list[Any] | None,
    ids: Sequence[int],
    max_kv_size: int | None,
    adapters: str | None = None,
) -> PrefilledCache:
    """Caches of one request's own that hold the beginning of its prompt; ``given`` stays as it is.

    A cache of the whole prompt gives one token back, since the model must see a last
    one; where its kind cannot, the prompt is processed anew.

    :raises CacheMismatchError: it holds other tokens, more of them, or an unknown number.
    """
    if given is None:
        return PrefilledCache(target.new_cache(max_kv_size), 0)
    caches = given.caches if isinstance(given, PromptCache) else list(given)
    check_kind(target, caches)
    if isinstance(given, PromptCache):
        _check_adapters(given.adapters, adapters)
        held = len(given.tokens)
        _check_count(caches, held)
        _check_tokens(given.tokens, ids)
    else:
        held = _held_tokens(caches)
    if held > len(ids):
        message = f"the cache holds {held} tokens, the prompt has {len(ids)}: it must be a prefix"
        raise CacheMismatchError(message)
    caches = copy.deepcopy(caches)
    if held < len(ids):
        return PrefilledCache(caches, held)
    from mlx_lm.models.cache import can_trim_prompt_cache, trim_prompt_cache

    given_back: Any = trim_prompt_cache(caches, 1) if can_trim_prompt_cache(caches) else 0
    if given_back == 1:
        return PrefilledCache(caches, held - 1)
    return PrefilledCache(target.new_cache(max_kv_size), 0)


def _held_tokens(caches: Sequence[Any]) -> int:
    counted = counted_tokens(caches)
    if counted is None:
        message = (
            "this cache does not tell how many tokens it holds (recurrent states only): "
            "give mlxfill.PromptCache(tokens, caches)"
        )
        raise CacheMismatchError(message)
    return counted


def counted_tokens(caches: Sequence[Any]) -> int | None:
    """Tokens in an mlx-lm prompt cache, None where none of its entries counts them."""
    offsets = (getattr(entry, "offset", None) for entry in flat(caches))
    return next((offset for offset in offsets if isinstance(offset, int)), None)


def _check_count(caches: Sequence[Any], named: int) -> None:
    counted = counted_tokens(caches)
    if counted not in (None, named):
        message = f"the cache holds {counted} tokens, not {named} as its PromptCache says"
        raise CacheMismatchError(message)


def check_kind(target: Target, caches: Sequence[Any]) -> None:
    """Raise ``CacheMismatchError`` for caches of another model."""
    fresh = target.new_cache()
    if len(fresh) != len(caches):
        message = f"the cache has {len(caches)} entries, this model needs {len(fresh)}"
        raise CacheMismatchError(message)
    for at, (given, own) in enumerate(zip(caches, fresh, strict=True)):
        # Keys and values may be kept in several ways; states and lists are of one kind each.
        if any(isinstance(given, k) != isinstance(own, k) for k in (ArraysCache, CacheList)):
            message = (
                f"entry {at} of the cache is a {type(given).__name__}, "
                f"this model needs a {type(own).__name__}"
            )
            raise CacheMismatchError(message)


def _check_adapters(made: str | None, asked: str | None) -> None:
    if made != asked:
        message = f"the cache was made with adapters={made!r}; the request has adapters={asked!r}"
        raise CacheMismatchError(message)


def _check_tokens(held: Sequence[int], ids: Sequence[int]) -> None:
    at = next((i for i, (a, b) in enumerate(zip(held, ids, strict=False)) if a != b), None)
    if at is not None:
        message = f"the cache holds other tokens than the prompt from position {at} on"
        raise CacheMismatchError(message)
