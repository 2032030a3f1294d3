"""Answers: a stream of server-sent events, or one JSON object."""

from __future__ import annotations

import asyncio
import json
import time
from abc import ABC, abstractmethod
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, ClassVar, Protocol
from uuid import uuid4

from attrs import field, frozen
from starlette.responses import JSONResponse, StreamingResponse

from mlxfill_serve.auditing import audit_told
from mlxfill_serve.choices import TextChoice
from mlxfill_serve.errors import ApiError
from mlxfill_serve.jobs import Audited, Ended, Scored, Token
from mlxfill_serve.usage import usage

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable, Sequence

    from starlette.requests import Request
    from starlette.responses import Response

    from mlxfill import Stats
    from mlxfill_serve.choices import ChatChoice
    from mlxfill_serve.generation import Generation
    from mlxfill_serve.metrics import Metrics

DONE = b"data: [DONE]\n\n"
ALIVE = b": still at work\n\n"
"""A comment, which clients skip: proxies and people hang up on silence."""


class ClientGoneError(Exception):
    """Nobody waits for the answer any more."""


class Choice(Protocol):
    """One reply, as entries of an answer."""

    tokenizer: Any
    tokens: list[Token]
    reasoning_tokens: int
    stats: Stats | None

    def feed(self, token: Token) -> Iterable[dict[str, Any]]:
        """What a token brings."""

    def end(self, ended: Ended) -> Iterable[dict[str, Any]]:
        """What was held back, and what ends the reply."""


@frozen(kw_only=True)
class Answer(ABC):
    """One answer, in the form that a path of the API has.

    ``replies``: choices of each prompt.
    """

    generation: Generation
    choices: Sequence[Choice]
    model: str
    metrics: Metrics
    replies: int = 1
    alive: ClassVar[bytes] = ALIVE
    audits: list[dict[str, Any]] = field(factory=list)
    key: str = field(factory=lambda: uuid4().hex)
    created: int = field(factory=lambda: int(time.time()))

    # --- the form ---------------------------------------------------------------------

    @abstractmethod
    def told(self) -> dict[str, Any]:
        """The whole answer as one object."""

    @abstractmethod
    def opening(self) -> bytes:
        """What a stream begins with."""

    @abstractmethod
    def pieces(self, entries: Sequence[dict[str, Any]]) -> bytes:
        """Entries of choices in a stream."""

    @abstractmethod
    def closing(self) -> bytes:
        """What a stream ends with."""

    @abstractmethod
    def broken(self, error: ApiError) -> bytes:
        """What a stream ends with when a choice failed."""

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
        return JSONResponse(self.told())

    async def _collect(self) -> None:
        async for burst in self.generation.bursts():
            for index, what in burst:
                self._entries(index, what)

    # --- server-sent events -----------------------------------------------------------

    async def events(self) -> AsyncGenerator[bytes, None]:
        """The answer piece by piece."""
        try:
            yield self.opening()
            async for burst in self.generation.bursts():
                if not burst and self.alive:
                    yield self.alive
                entries = [e for index, what in burst for e in self._entries(index, what)]
                if entries:
                    yield self.pieces(entries)
            yield self.closing()
        except ApiError as error:
            yield self.broken(error)
        finally:
            self._leave()

    def _leave(self) -> None:
        """Whatever happened, nothing more is wanted."""
        self.generation.drop()
        for choice in self.choices:
            self.metrics.count(choice.tokens, choice.stats)

    def _entries(self, index: int, what: object) -> list[dict[str, Any]]:
        choice = self.choices[index]
        if isinstance(what, Token):
            return list(choice.feed(what))
        if isinstance(what, Scored) and isinstance(choice, TextChoice):
            return list(choice.scored(what.tokens))
        if isinstance(what, Audited):
            self.audits.append(audit_told(what.found, choice.tokenizer.decode))
        return list(choice.end(what)) if isinstance(what, Ended) else []

    # --- both -------------------------------------------------------------------------

    def usage(self) -> dict[str, Any]:
        """What all choices cost."""
        stats = [choice.stats for choice in self.choices if choice.stats is not None]
        return usage(stats, self.replies, sum(choice.reasoning_tokens for choice in self.choices))

    def audit(self) -> dict[str, Any]:
        """What mlxfill adds to the whole: an audit has one reply."""
        return {"audit": self.audits[0]} if self.audits else {}


@frozen
class Wire:
    """How a stream is written.  ``broken``: what says why there is no answer after all.

    ``alive``: what is sent while there is nothing to tell, b"" for nothing.
    """

    broken: Callable[[ApiError], bytes]
    alive: bytes = ALIVE
    media_type: str = "text/event-stream"


async def streamed(making: asyncio.Future[Answer], patience: float, wire: Wire) -> Response:
    """An answer as a stream, which begins after ``patience`` seconds even if it is not made yet.

    :raises ApiError: there is none, and that was known in time.
    """
    await asyncio.wait({making}, timeout=patience)
    if making.done():
        making.result()
    headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
    events = _events(making, patience, wire)
    return StreamingResponse(events, media_type=wire.media_type, headers=headers)


async def _events(
    making: asyncio.Future[Answer], patience: float, wire: Wire
) -> AsyncGenerator[bytes, None]:
    try:
        while not making.done():
            if wire.alive:
                yield wire.alive
            await asyncio.wait({making}, timeout=patience)
        answer = making.result()
    except ApiError as error:
        yield wire.broken(error)
        return
    finally:
        making.cancel()
    async with aclosing(answer.events()) as events:
        async for each in events:
            yield each


@frozen(kw_only=True)
class CompletionAnswer(Answer):
    """A completion.  ``kind``: OpenAI's word for the object; a chunk's is ``chunk_kind``."""

    choices: Sequence[ChatChoice | TextChoice]
    kind: str
    chunk_kind: str
    prefix: str
    with_usage: bool = False

    def told(self) -> dict[str, Any]:
        """The whole answer as one object."""
        choices = [choice.whole() for choice in self.choices]
        told = {"choices": choices, "usage": self.usage(), **self._ours()}
        return {**self._head(self.kind), **told}

    def opening(self) -> bytes:
        """The first chunk of each choice."""
        return self.pieces([choice.opening() for choice in self.choices])

    def pieces(self, entries: Sequence[dict[str, Any]]) -> bytes:
        """A chunk for each entry."""
        head = self._head(self.chunk_kind)
        none: dict[str, Any] = {"usage": None} if self.with_usage else {}
        return b"".join(event({**head, **_chunk(entry), **none}) for entry in entries)

    def closing(self) -> bytes:
        """The counts, where they are wanted, and OpenAI's word for the end."""
        if not self.with_usage:
            return DONE
        told = {"choices": [], "usage": self.usage(), **self._ours()}
        return event({**self._head(self.chunk_kind), **told}) + DONE

    def broken(self, error: ApiError) -> bytes:
        """OpenAI's error object."""
        return error_event(error)

    def _ours(self) -> dict[str, Any]:
        audit = self.audit()
        return {"mlxfill": audit} if audit else {}

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


def event(data: dict[str, Any], kind: str | None = None) -> bytes:
    """A server-sent event; ``kind`` is its name."""
    name = "" if kind is None else f"event: {kind}\n"
    told = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return f"{name}data: {told}\n\n".encode()


def error_event(error: ApiError) -> bytes:
    """OpenAI's error object in a stream."""
    return event(error.body())


async def _hang_up(request: Request) -> None:
    """Wait until the client is gone."""
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            return
