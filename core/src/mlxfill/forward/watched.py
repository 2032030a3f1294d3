"""A forwarder that checks, on both sides of every forward, what the caches hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import frozen

from mlxfill.forward.runner import TargetRunner, VerifyResult, Window

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    import mlx.core as mx


@frozen
class WindowRecord:
    """One forward of several ids, or of one that is judged.

    ``held``: tokens in the caches before it.  Of ``known`` ids that entered anyway and ``drafted``
    ids, ``accepted`` of the latter stayed.
    """

    held: int
    known: int
    drafted: int
    accepted: int


def misaligned(caches: Sequence[Any], held: int) -> str:
    """The first cache entry that does not hold ``held`` tokens, in words; "" when all do.

    Entries that count no tokens (recurrent states) and entries that the model never used are passed
    over.
    """
    for at, entry in enumerate(caches):
        for part in getattr(entry, "caches", (entry,)):
            offset = getattr(part, "offset", None)
            if isinstance(offset, int) and offset != held and not (offset == 0 and part.empty()):
                return f"cache entry {at} ({type(part).__name__}) holds {offset} tokens, not {held}"
    return ""


class WatchedRunner(TargetRunner):
    """Takes the place of a ``TargetRunner`` while a request is traced or audited.

    ``on_window`` is told of every window, ``on_misaligned``, once, what is wrong and where.
    """

    watched = True
    on_window: Callable[[WindowRecord], None] | None = None
    on_misaligned: Callable[[str], None] | None = None

    def prefill(
        self, ids: Sequence[int], embeddings: mx.array | None = None
    ) -> Generator[None, None, mx.array]:
        """As of ``TargetRunner``."""
        self._check(f"before prompt token {self.held + 1}")
        logits = yield from super().prefill(ids, embeddings)
        self._check(f"after prompt token {self.held}")
        return logits

    def step(
        self,
        pending: mx.array,
        histories: Sequence[Sequence[int]],
        unread: int,
        embeddings: mx.array | None = None,
    ) -> tuple[mx.array, mx.array | Sequence[mx.array]]:
        """As of ``TargetRunner``."""
        self._check(f"before the step at {self.held}")
        out = super().step(pending, histories, unread, embeddings)
        self._check(f"after the step at {self.held - 1}")
        return out

    def append(self, ids: Sequence[int]) -> None:
        """As of ``TargetRunner``."""
        held = self._begin(len(ids))
        super().append(ids)
        self._end(WindowRecord(held, len(ids), 0, 0))

    def verify(
        self, windows: Sequence[Window], histories: Sequence[Sequence[int]]
    ) -> list[VerifyResult]:
        """As of ``TargetRunner``."""
        (window,), (tokens,) = windows, histories
        if window.more_known and not window.want_known:
            return super().verify(windows, histories)
        held, before = self._begin(window.size), len(tokens) - len(window.known)
        if before != held:
            self._complain(f"the caches hold {held} tokens, a window begins at {before}")
        (result,) = super().verify(windows, histories)
        self._end(WindowRecord(held, len(window.known), len(result.drafts), result.accepted))
        return [result]

    def _begin(self, size: int) -> int:
        self._check(f"before the window of {size} at {self.held}")
        return self.held

    def _end(self, window: WindowRecord) -> None:
        size = window.known + window.drafted
        self._check(f"after the window of {size} at {window.held}")
        if self.on_window is not None:
            self.on_window(window)

    def _check(self, where: str) -> None:
        wrong = misaligned(self.caches, self.held)
        if wrong:
            self._complain(f"{wrong}, {where}")

    def _complain(self, what: str) -> None:
        if self.on_misaligned is not None:
            tell, self.on_misaligned = self.on_misaligned, None
            tell(what)
