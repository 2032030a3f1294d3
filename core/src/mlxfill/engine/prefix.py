"""Caches at the beginning of a request, and what it leaves of them for others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlxfill.prefix_cache.boundaries import boundaries
from mlxfill.prefix_cache.prefilled import PrefilledCache, check_kind, own_caches
from mlxfill.prefix_cache.store import CacheRecorder, trimmable

if TYPE_CHECKING:
    from collections.abc import Callable

    from mlxfill.config.sections import Cache
    from mlxfill.contracts import Fault, Request
    from mlxfill.engine.proposers import Proposers
    from mlxfill.forward.runner import TargetRunner
    from mlxfill.model.target import Target
    from mlxfill.prefix_cache.boundaries import SharedPrefixes
    from mlxfill.prefix_cache.store import PrefixCache
    from mlxfill.proposals.drafting import Drafting
    from mlxfill.request.options import Options


class PrefixLookup:
    """Where one request finds the beginning of its prompt."""

    def __init__(
        self,
        target: Target,
        options: Options,
        bounds: Cache,
        prompts: PrefixCache,
        starts: SharedPrefixes,
    ) -> None:
        """Nothing is looked up yet; ``bounds``: what the config says of ``prompts``."""
        self._target, self._options, self._bounds = target, options, bounds
        self._prompts, self._starts = prompts, starts

    def caches(self, request: Request, unnamed: int, proposers: Proposers) -> PrefilledCache:
        """Those that an earlier request left or the caller gave, or fresh ones.

        :param unnamed: tokens in an mlx-lm ``prompt_cache``.
        :param proposers: say whether the drafter must be able to go on as well.
        :raises CacheMismatchError: what the caller gave does not fit.
        """
        if self._shares():
            found = self._prompts.fetch(
                request.prompt_ids,
                adapters=self._options.adapters,
                drafts_worth=proposers.drafts_worth,
            )
            if found is not None:
                return found
        return self.unshared(request, unnamed)

    def unshared(self, request: Request, unnamed: int = 0) -> PrefilledCache:
        """The same without those of earlier requests."""
        options, target = self._options, self._target
        if options.prompt_cache is not None:
            check_kind(target, options.prompt_cache)
            return PrefilledCache(options.prompt_cache, unnamed, unnamed)
        return own_caches(
            target, options.cache, request.prompt_ids, options.max_kv_size, options.adapters
        )

    def deposit(
        self,
        request: Request,
        forwarder: TargetRunner,
        drafting: Drafting | None,
        on_fault: Callable[[Fault], None],
    ) -> CacheRecorder | None:
        """What the request leaves in the prompt cache.  Caches at its end may be trimmable."""
        if not self._shares():
            return None
        several = drafting is not None or not trimmable(forwarder.caches)
        found = boundaries(request, self._starts) if several else ()
        after = [at for at in found if at > forwarder.held]
        return CacheRecorder(self._prompts, forwarder, drafting, on_fault, after)

    def _shares(self) -> bool:
        """Whether this request takes its beginning from the prompt cache, and leaves its own there.

        Not where a beginning that was processed apart reads otherwise than in one prompt: caches
        that are quantized on the way, or that drop tokens.
        """
        options, bounds = self._options, self._bounds
        wanted = options.session is not None or bounds.every_request
        wanted = wanted and options.prompt_logprobs is None  # all of the prompt is to be read
        unfit = (options.cache, options.prompt_cache, options.input_embeddings, options.snapshot_at)
        others = (options.kv_bits, options.max_kv_size)
        return wanted and bounds.max_entries > 0 and all(o is None for o in (*unfit, *others))
