"""Threads that read requests, so that the engine's thread need not.

To render a chat template, to split a long prompt into tokens and to compile a schema take up to
seconds, in which no stream would get its next token.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from mlxfill_serve.errors import as_api_error, timed_out

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

THREADS = 2
"""Requests that are read at once."""


class Readers:
    """Run what reads a request."""

    def __init__(self, timeout: float) -> None:
        """``timeout``: seconds that a request may wait to be read."""
        self._timeout = timeout
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="mlxfill-read")

    async def read(self, work: Callable[[], T]) -> T:
        """What ``work`` gives, made in another thread.

        :raises ApiError: what it raised, or 504 when it took too long.
        """
        reading = asyncio.get_running_loop().run_in_executor(self._pool, work)
        try:
            return await asyncio.wait_for(reading, self._timeout)
        except TimeoutError:
            said = f"the request took longer than {self._timeout:g} s to read"
            raise timed_out(said) from None
        except Exception as error:
            raise as_api_error(error) from error

    def close(self) -> None:
        """Read no more."""
        self._pool.shutdown(wait=False, cancel_futures=True)
