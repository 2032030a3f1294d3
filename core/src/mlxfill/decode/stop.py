"""What makes a run end, or rest, at the next boundary."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from mlxfill.proposals.session import Session


class StopControl:
    """Asked by the decode loop before it begins anything new.

    Knows nothing of the run that it belongs to: a run that knew itself would wait for Python's
    garbage collector, and its caches with it.  ``due``: whether a checkpoint is due after so many
    tokens of the reply, where checkpoints are taken; ``pausing``: somebody wants the run to rest
    at a boundary for now; ``closing``: to end there.
    """

    def __init__(self, cancel: threading.Event | None, session: Session) -> None:
        """``cancel``: the request's event; ``session`` holds the prompt and nothing more yet."""
        self.due: Callable[[int], bool] | None = None
        self.pausing = self.closing = False
        self._cancel, self._session = cancel, session
        self._prompt = len(session.tokens)

    def cancelled(self) -> bool:
        """Whether nobody wants the rest."""
        return self.closing or (self._cancel is not None and self._cancel.is_set())

    def stops(self) -> bool:
        """Whether the loop shall end here.  With checkpoints it is paused instead and then left."""
        return self.due is None and self.cancelled()

    def pauses(self) -> bool:
        """Whether nothing new shall be begun for now."""
        if self.pausing or self.due is None:
            return self.pausing
        return self.due(len(self._session.tokens) - self._prompt) or self.cancelled()
