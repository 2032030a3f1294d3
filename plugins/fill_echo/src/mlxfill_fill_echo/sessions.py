"""Memories that outlive a request: one for each session, and never one for two."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any
from weakref import ref

from attrs import frozen

from mlxfill_fill_echo.memory import Memory

if TYPE_CHECKING:
    from mlxfill import Request
    from mlxfill_fill_echo.settings import EchoSettings


@frozen
class _Kept:
    """A memory and what it was made for; ids mean nothing under another tokenizer."""

    memory: Memory
    settings: EchoSettings
    tokenizer: ref[Any]

    def fits(self, request: Request, settings: EchoSettings) -> bool:
        return self.tokenizer() is request.tokenizer and self.settings == settings


class Sessions:
    """The sessions of this process, the one used last at the end.

    Bounded in number and in tokens by the settings of the request that opens; the session that
    opens is never the one forgotten.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, int], _Kept] = OrderedDict()
        self._lock = threading.Lock()

    def open(self, request: Request, settings: EchoSettings) -> Memory:
        """The memory for a request, with its prompt.

        Without ``request.session`` it is new and nobody else's.  A request that takes up a session
        which another one still uses leaves that one with an empty memory.
        """
        if request.session is None:
            return _begun(Memory(settings), request)
        key = (request.session, id(request.tokenizer))
        with self._lock:
            kept = self._kept.pop(key, None)
            known = kept is not None and kept.fits(request, settings)
            memory = kept.memory.handed_over() if kept and known else Memory(settings)
            _begun(memory, request)
            self._kept[key] = _Kept(memory, settings, ref(request.tokenizer))
            self._shrink(settings)
        return memory

    def _shrink(self, settings: EchoSettings) -> None:
        for key in [key for key, kept in self._kept.items() if kept.tokenizer() is None]:
            del self._kept[key]  # nobody can take up a session of an engine that is gone
        tokens = sum(len(kept.memory) for kept in self._kept.values())
        while len(self._kept) > 1 and (
            len(self._kept) > settings.max_sessions or tokens > settings.session_tokens
        ):
            _, oldest = self._kept.popitem(last=False)
            tokens -= len(oldest.memory)

    def forget(self, session: str) -> bool:
        """Erase one session; says whether it was known.

        A request that still runs in it goes on with an empty memory.
        """
        with self._lock:
            keys = [key for key in self._kept if key[0] == session]
            for key in keys:
                self._kept.pop(key).memory.handed_over()
        return bool(keys)

    def forget_all(self) -> None:
        """Erase every session."""
        for session in {key[0] for key in list(self._kept)}:
            self.forget(session)

    def sizes(self) -> dict[str, int]:
        """Tokens remembered by session, in all engines; the one used longest ago first."""
        sizes: dict[str, int] = {}
        with self._lock:
            for (session, _), kept in self._kept.items():
                sizes[session] = sizes.get(session, 0) + len(kept.memory)
        return sizes


def _begun(memory: Memory, request: Request) -> Memory:
    memory.begin(request.prompt_ids)
    return memory


SESSIONS = Sessions()
"""The one that the plugin uses."""
