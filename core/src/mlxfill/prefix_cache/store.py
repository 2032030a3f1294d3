"""Caches of earlier prompts, for requests that begin alike.

A prefix tree over the ids, as in mlx-lm's ``LRUPromptCache``, costs time quadratic in what two
prompts do not share (docs/adr/0016).  There are few entries here, so all of them are looked at.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import numpy as np
from attrs import define, frozen
from mlx_lm.models.cache import KVCache

from mlxfill.contracts import Fault
from mlxfill.prefix_cache.prefilled import PrefilledCache
from mlxfill.rewind.entries import flat

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from mlxfill.contracts import DraftCheckpoint
    from mlxfill.forward.runner import TargetRunner
    from mlxfill.proposals.drafting import Drafting

    Ids = NDArray[np.int32]

LEAST_ROOM = 4096 << 20
"""Bytes for all entries, unless the config says how many, and unless memory is large."""
SHARE_OF_MEMORY = 4
"""Of a large memory entries may take one part in so many."""


@define(eq=False)
class Entry:
    """Caches that hold exactly ``tokens``, and the drafter's state after as many.

    ``adapters``: the LoRA adapter under which they were computed.  ``drafter``: whether one was at
    work, and if so whether it needs its own state to go on.
    """

    tokens: Ids
    adapters: str | None
    caches: list[Any]
    draft: DraftCheckpoint | None
    drafter: bool | None
    nbytes: int
    trimmable: bool

    def usable(self, ids: Ids, adapters: str | None) -> int:
        """How many of ``ids`` a request may take from here; the model must see the last one."""
        if self.adapters != adapters:
            return 0
        same = common(self.tokens, ids)
        if same == len(self.tokens) < len(ids):
            return same
        return min(same, len(ids) - 1) if self.trimmable else 0

    def lets_draft(self, count: int) -> bool:
        """Whether a drafter can go on after the first ``count`` tokens of this entry."""
        if self.drafter is False:
            return True
        return self.draft is not None and count == len(self.tokens)


class PrefixCache:
    """The newest entries, bounded by number and bytes.

    What goes in and out is copied, so that no request changes an entry: handles of arrays, not
    their content.
    """

    def __init__(self, max_entries: int, max_bytes: int) -> None:
        """Bounds; 0 entries switch it off."""
        self.max_entries, self.max_bytes = max_entries, max_bytes
        self.refused = False
        self._entries: list[Entry] = []  # the one used last is the last

    def __len__(self) -> int:
        """Entries."""
        return len(self._entries)

    @property
    def nbytes(self) -> int:
        """Bytes of all entries; arrays that two of them share count twice."""
        return sum(entry.nbytes for entry in self._entries)

    def clear(self) -> None:
        """Forget everything."""
        self._entries.clear()

    def close(self) -> None:
        """Forget everything and keep nothing more, also of requests that go on."""
        self.max_entries = 0
        self.clear()

    def fetch(
        self, ids: Sequence[int], *, adapters: str | None = None, drafts_worth: float = 0.0
    ) -> PrefilledCache | None:
        """Caches with the longest known beginning of ``ids``, at most all but the last.

        :param drafts_worth: how many tokens of the prompt rather to read again than to do without
            a drafter, which sits out where it cannot go on.
        """
        best, found, count = (0.0, False), None, 0
        asked = packed(ids)
        for entry in tuple(self._entries):  # a run that is collected meanwhile may leave another
            usable = entry.usable(asked, adapters)
            worth = usable - (0.0 if entry.lets_draft(usable) else drafts_worth)
            rank = (worth, entry.draft is not None)
            if worth > 0 and rank >= best:
                best, found, count = rank, entry, usable
        if found is None:
            return None
        self._entries = [*(entry for entry in self._entries if entry is not found), found]
        caches = copy.deepcopy(found.caches)
        left = len(found.tokens) - count
        for each in flat(caches) if left else ():
            each.trim(left)
        return PrefilledCache(caches, count, draft=None if left else found.draft, kept=True)

    def keep(
        self,
        tokens: Sequence[int],
        caches: Sequence[Any],
        draft: DraftCheckpoint | None,
        *,
        adapters: str | None = None,
        drafter: bool | None = None,
    ) -> int:
        """Keep the caches of a request, which goes on with its own.

        :param drafter: None without a drafter, else whether it needs its own state to go on.
        :returns: bytes of caches that alone are above the bound, the first time; else 0.
        """
        if not (tokens and self.max_entries and self.max_bytes):
            return 0
        nbytes = sum(entry.nbytes for entry in caches)
        nbytes += sum(array.nbytes for array in draft.tensors.values()) if draft else 0
        if nbytes > self.max_bytes:
            news, self.refused = not self.refused, True
            return nbytes if news else 0
        held = packed(tokens)
        own = copy.deepcopy(list(caches))
        entry = Entry(held, adapters, own, draft, drafter, nbytes, trimmable(own))
        self._entries = [*(old for old in self._entries if not _replaces(entry, old)), entry]
        while len(self._entries) > self.max_entries or self.nbytes > self.max_bytes:
            self._entries = self._entries[1:]
        return 0


@frozen
class CacheRecorder:
    """What one request leaves in a store, for requests that begin alike.

    ``boundaries``: numbers of prompt tokens, ascending, after which it leaves its caches on the
    way through the prompt.  ``on_fault`` hears, once, of caches that there is no room for.
    """

    store: PrefixCache
    forwarder: TargetRunner
    drafting: Drafting | None
    on_fault: Callable[[Fault], None]
    boundaries: Sequence[int] = ()

    def leave(self, tokens: Sequence[int]) -> None:
        """A copy of the caches, which hold ``tokens``."""
        forwarder, drafting = self.forwarder, self.drafting
        if not forwarder.caches:
            return
        refused = self.store.keep(
            tokens,
            forwarder.caches,
            None if drafting is None else drafting.captured(tokens, len(tokens)),
            adapters=forwarder.options.adapters,
            drafter=None if drafting is None else bool(drafting.aux_layers),
        )
        if refused:
            said = _no_room(refused, self.store.max_bytes)
            self.on_fault(Fault("engine", "prompt cache", said, notice=True))


def _no_room(asked: int, most: int) -> str:
    return (
        f"caches of {-(-asked // (1 << 20))} MB are not kept for the next turn, which reads its"
        f" prompt again: max_mb of [cache] is {most >> 20}"
    )


def room(max_mb: int | None) -> int:
    """Bytes for all entries; None: 4096 MB, or a quarter of the device's memory if that is more.

    A long session of a large model takes gigabytes, and is what reading again costs most for.
    """
    if max_mb is not None:
        return max_mb << 20
    memory = mx.device_info().get("memory_size", 0)
    return max(LEAST_ROOM, int(memory) // SHARE_OF_MEMORY)


def trimmable(caches: Sequence[Any]) -> bool:
    """Whether any number of tokens can be taken back, now and later, by mlx-lm's ``trim``."""
    return all(type(entry) is KVCache for entry in flat(caches))


def packed(ids: Sequence[int]) -> Ids:
    """Ids as an array: a tenth of the memory of ints, and compared all at once."""
    return np.array(ids, np.int32)


def common(a: Ids, b: Ids) -> int:
    """How many ids two sequences have in common from the start on."""
    size = min(len(a), len(b))
    parted = np.flatnonzero(a[:size] != b[:size])
    return int(parted[0]) if parted.size else size


def _replaces(new: Entry, old: Entry) -> bool:
    """Whether nobody who may use ``old`` would miss it."""
    if new.adapters != old.adapters:
        return False
    inside = common(new.tokens, old.tokens) == len(old.tokens)
    if len(new.tokens) == len(old.tokens):
        return inside and (new.draft is not None or old.draft is None)
    # Trimmed, an entry is without the drafter's state.
    return inside and new.trimmable and old.draft is None
