"""Answers: a stream of server-sent events, or one JSON object."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from attrs import field, frozen
from starlette.responses import JSONResponse, StreamingResponse

from mlxfill_serve.auditing import audit_told
from mlxfill_serve.errors import ApiError
from mlxfill_serve.jobs import Audited, Ended, Token
from mlxfill_serve.usage import usage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from starlette.requests import Request
    from starlette.responses import Response

    from mlxfill_serve.choices import ChatChoice, TextChoice
    from mlxfill_serve.generation import Generation
    from mlxfill_serve.metrics import Metrics

DONE = b"data: [DONE]\n\n"
ALIVE = b": still at work\n\n"
"""A comment, which clients skip: proxies and people hang up on silence."""


class ClientGoneError(Exception):
    """Nobody waits for the answer any more."""


@frozen
class Answer:
    """One answer.  ``kind``: OpenAI's word for the object; a chunk's is ``chunk_kind``.

    ``replies``: choices of each prompt.
    """

    generation: Generation
    choices: Sequence[ChatChoice | TextChoice]
    model: str
    kind: str
    chunk_kind: str
    prefix: str
    metrics: Metrics
    with_usage: bool = False
    replies: int = 1
    audits: list[dict[str, Any]] = field(factory=list)
    key: str = field(factory=lambda: uuid4().hex)
    created: int = field(factory=lambda: int(time.time()))

    # --- one JSON object --------------------------------------------------------------

    async def whole(self, request: Request) -> Response:
        """The answer when it is complete.  Given up when the client hangs up.

        :raises ApiError: a choice failed.
        """
        collecting = asyncio.ensure_future(self._collect())
        leaving = asyncio.ensure_future(_hang_up(request))
        try:
            await asyncio.wait({collecting, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not collecting.done():
                raise ClientGoneError
            collecting.result()
        finally:
            leaving.cancel()
            collecting.cancel()
            self._leave()
        choices = [choice.whole() for choice in self.choices]
        told = {"choices": choices, "usage": self.usage(), **self._ours()}
        return JSONResponse({**self._head(self.kind), **told})

    async def _collect(self) -> None:
        async for burst in self.generation.bursts():
            for index, event in burst:
                self._entries(index, event)

    # --- server-sent events -----------------------------------------------------------

    def stream(self) -> Response:
        """The answer piece by piece."""
        headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
        return StreamingResponse(self._events(), media_type="text/event-stream", headers=headers)

    async def _events(self) -> AsyncIterator[bytes]:
        head = self._head(self.chunk_kind)
        none: dict[str, Any] = {"usage": None} if self.with_usage else {}
        try:
            opening = [choice.opening() for choice in self.choices]
            yield b"".join(_event({**head, "choices": [entry], **none}) for entry in opening)
            async for burst in self.generation.bursts():
                if not burst:
                    yield ALIVE
                entries = [e for index, event in burst for e in self._entries(index, event)]
                if entries:
                    yield b"".join(_event({**head, **_chunk(entry), **none}) for entry in entries)
            if self.with_usage:
                yield _event({**head, "choices": [], "usage": self.usage(), **self._ours()})
            yield DONE
        except ApiError as error:
            yield _event(error.body())
        finally:
            self._leave()

    def _leave(self) -> None:
        """Whatever happened, nothing more is wanted."""
        self.generation.drop()
        for choice in self.choices:
            self.metrics.count(choice.tokens, choice.stats)

    def _entries(self, index: int, event: object) -> list[dict[str, Any]]:
        choice = self.choices[index]
        if isinstance(event, Token):
            return list(choice.feed(event))
        if isinstance(event, Audited):
            self.audits.append(audit_told(event.found, choice.tokenizer.decode))
        return list(choice.end(event)) if isinstance(event, Ended) else []

    # --- both -------------------------------------------------------------------------

    def usage(self) -> dict[str, Any]:
        """What all choices cost."""
        stats = [choice.stats for choice in self.choices if choice.stats is not None]
        return usage(stats, self.replies, sum(choice.reasoning_tokens for choice in self.choices))

    def _ours(self) -> dict[str, Any]:
        """What mlxfill adds to the whole: an audit has one reply."""
        return {"mlxfill": {"audit": self.audits[0]}} if self.audits else {}

    def _head(self, kind: str) -> dict[str, Any]:
        return {
            "id": f"{self.prefix}-{self.key}",
            "object": kind,
            "created": self.created,
            "model": self.model,
        }


def _chunk(entry: dict[str, Any]) -> dict[str, Any]:
    """A chunk of one choice; what mlxfill adds stands beside OpenAI's fields."""
    ours = entry.pop("mlxfill", None)
    return {"choices": [entry]} if ours is None else {"choices": [entry], "mlxfill": ours}


def _event(data: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(data, ensure_ascii=False, separators=(',', ':'))}\n\n".encode()


async def _hang_up(request: Request) -> None:
    """Wait until the client is gone."""
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            return
