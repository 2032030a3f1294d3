"""A conversation with a server that speaks OpenAI's API, in the place of an engine."""

from __future__ import annotations

import json
import os
from contextlib import closing, contextmanager
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from mlxfill import InputError, MlxfillError, Piece, Result, Stats

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
    from http.client import HTTPResponse

    Progress = Callable[[int, int], None]

CONNECTIONS = {"http": HTTPConnection, "https": HTTPSConnection}
KEY = "MLXFILL_API_KEY"
SAMPLED = "sampled"
"""The origin of a token that a server does not tell."""
SILENCE = 600.0
"""Seconds that a server may say nothing."""
SAME = frozenset(
    (
        *("max_tokens", "stop", "temperature", "top_p", "top_k", "min_p", "seed"),
        *("xtc_probability", "xtc_threshold", "repetition_penalty", "repetition_context_size"),
        *("presence_penalty", "presence_context_size"),
        *("frequency_penalty", "frequency_context_size"),
    )
)
"""Options that a request names as the engine does."""


class ServerError(MlxfillError):
    """The server cannot be reached, or refuses; its own words where it gave any."""


class Server:
    """Where the API is: ``http://127.0.0.1:8080``, with or without ``/v1``."""

    def __init__(self, url: str) -> None:
        """Raises ``InputError`` unless ``url`` is one of HTTP."""
        try:
            parts = urlsplit(url if "://" in url else f"http://{url}")
            host, self._path = parts.hostname or "", parts.path.rstrip("/") or "/v1"
            self._connect = partial(CONNECTIONS[parts.scheme], host, parts.port, timeout=SILENCE)
            self._connect()  # tells a wrong host, and reaches for nothing yet
        except (KeyError, ValueError, HTTPException):
            host = ""
        if not host:
            raise InputError(f"--url must be like http://127.0.0.1:8080, not {url!r}")
        self._shown = url

    def get(self, path: str) -> Any:  # noqa: ANN401 - JSON
        """What a path answers.  Raises ``ServerError``."""
        with self._answer("GET", path) as response:
            try:
                return json.load(response)
            except ValueError:
                raise ServerError(f"{self._shown} does not speak OpenAI's API") from None

    def stream(self, path: str, body: Mapping[str, Any]) -> Generator[dict[str, Any], None, None]:
        """The events of an answer.  Raises ``ServerError``, also in the middle."""
        with self._answer("POST", path, body) as response:
            try:
                for line in response:
                    if line.startswith(b"data: {"):
                        event: dict[str, Any] = json.loads(line[6:])
                        if "error" in event:
                            raise ServerError(_said(event))
                        yield event
            except (OSError, HTTPException) as error:
                raise ServerError(f"{self._shown} broke off: {error}") from error

    @contextmanager
    def _answer(
        self, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> Iterator[HTTPResponse]:
        """The answer to a request, to be read inside the block."""
        headers = {"Content-Type": b"application/json", "Connection": b"close"}
        if os.environ.get(KEY):
            headers["Authorization"] = f"Bearer {os.environ[KEY]}".encode()
        content = None if body is None else json.dumps(body)
        with closing(self._connect()) as connection:
            try:
                connection.request(method, f"{self._path}{path}", content, headers)
                response = connection.getresponse()
            except (OSError, HTTPException) as error:
                raise ServerError(f"{self._shown} cannot be reached: {error}") from error
            with closing(response):
                if response.status >= 400:  # noqa: PLR2004 - HTTP
                    raise ServerError(_refusal(response))
                yield response


def _refusal(response: HTTPResponse) -> str:
    try:
        return _said(json.load(response))
    except ValueError:
        return f"the server answers {response.status} {response.reason}"


def _said(answer: Any) -> str:  # noqa: ANN401 - JSON
    error = answer.get("error") if isinstance(answer, dict) else None
    message = error.get("message") if isinstance(error, dict) else error
    return " ".join(str(message).split())


class RemoteRun:
    """The pieces of one reply, as they come."""

    def __init__(
        self,
        events: Generator[dict[str, Any], None, None],
        cancel: threading.Event | None,
        *,
        told: bool,
    ) -> None:
        """``told``: the server tells of each token what the model wrote, markers included."""
        self._events, self._cancel, self._told = events, cancel, told
        self._texts: list[str] = []
        self._tokens: list[int] = []
        self._origins: list[str] = []
        self._calls: dict[int, dict[str, Any]] = {}
        self._message = {"role": "assistant", "content": "", "reasoning_content": ""}
        self._thinks = False
        self._finish: Any = None
        self._stats = Stats()

    def __iter__(self) -> Iterator[Piece]:
        """Text with its origin, where the server tells it."""
        for event in self._events:
            if self._cancel is not None and self._cancel.is_set():
                self._finish = "cancelled"
                break
            if event.get("usage"):
                self._stats = _stats(event["usage"])
            for choice in event.get("choices", ()):
                self._finish = choice.get("finish_reason") or self._finish
                yield from self._piece(choice.get("delta") or {}, event.get("mlxfill"))
        self._events.close()  # hangs up

    def _piece(self, delta: dict[str, Any], told: dict[str, Any] | None) -> Iterator[Piece]:
        parts = [delta.get("reasoning_content") or "", delta.get("content") or ""]
        for call in delta.get("tool_calls") or ():
            parts += self._call(call)
        for name, text in zip(("reasoning_content", "content"), parts, strict=False):
            self._message[name] += text
        if any(parts):  # else it is a marker
            self._thinks = bool(parts[0])
        if self._told and told is None:  # a further part of a token that was told
            return
        told = told or {"text": "".join(parts)}
        if told.get("token") is not None:
            self._tokens.append(told["token"])
            self._origins.append(told["origin"])
        if told["text"]:
            self._texts.append(told["text"])
            yield Piece(told["text"], told.get("token"), told.get("origin", SAMPLED))

    def _call(self, delta: dict[str, Any]) -> list[str]:
        """Take a part of a call; its text, for servers that do not tell the model's own."""
        call = self._calls.setdefault(
            delta.get("index", 0), {"type": "function", "function": {"name": "", "arguments": ""}}
        )
        if delta.get("id"):
            call["id"] = delta["id"]
        function = delta.get("function") or {}
        parts = [function.get(name) or "" for name in ("name", "arguments")]
        for name, part in zip(("name", "arguments"), parts, strict=True):
            call["function"][name] += part
        return parts

    def thinks(self, _: str) -> bool:
        """Whether the newest text is reasoning."""
        return self._thinks

    def message(self) -> dict[str, Any]:
        """The reply, to be sent along with the next turn."""
        made: dict[str, Any] = {k: v for k, v in self._message.items() if v or k == "content"}
        return {**made, "tool_calls": list(self._calls.values())} if self._calls else made

    def result(self) -> Result:
        """The reply and what it cost."""
        reason: Any = self._finish if self._finish in {"length", "cancelled"} else "stop"
        return Result(
            text="".join(self._texts),
            tokens=self._tokens,
            origins=self._origins,
            finish_reason=reason,
            stats=self._stats,
            reasoning=self._message["reasoning_content"],
            content=self._message["content"],
        )


def _stats(usage: dict[str, Any]) -> Stats:
    """Counters of a request; other servers tell the first two only."""
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
    names = ("target_forwards", "prefill_ms", "decode_ms", "seed")
    return Stats(
        prompt_tokens=usage.get("prompt_tokens", 0),
        cached_tokens=cached,
        generated_tokens=usage.get("completion_tokens", 0),
        fill=usage.get("fill") or {},
        spec=usage.get("speculation") or {},
        **{name: usage[name] for name in names if name in usage},
    )


class RemoteConversation:
    """Messages so far, for ``mlxfill chat``, which calls what is public here."""

    engine = None

    def __init__(
        self,
        url: str,
        model: str | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        options: Mapping[str, Any] | None = None,
        system: str | None = None,
    ) -> None:
        """``options``: keywords of ``Engine.stream``.

        :raises InputError: the URL is wrong, or the server is not asked such an option in this way.
        :raises ServerError: it cannot be reached, or serves no model.
        """
        self._server = server = Server(url)
        served = server.get("/models").get("data") or []
        if not served:
            raise ServerError("the server serves no model")
        body = {"model": model or served[0]["id"], "stream": True, **_body(options or {})}
        self._body: dict[str, Any] = {**body, "stream_options": {"include_usage": True}}
        if tools:
            self._body["tools"] = list(tools)
        if served[0].get("owned_by") == "mlxfill":
            self._body["mlxfill"] = {"origins": True}
        self.system = system
        self.messages: list[Mapping[str, Any]] = []
        self.last: Result | None = None
        self.reset()

    def reset(self) -> None:
        """Forget everything but the system message."""
        self.messages = [] if self.system is None else [{"role": "system", "content": self.system}]

    def open(
        self,
        text: str,
        *,
        cancel: threading.Event | None = None,
        on_prefill_progress: Progress | None = None,  # noqa: ARG002 - the server does not tell
    ) -> RemoteRun:
        """Say ``text``."""
        self.messages.append({"role": "user", "content": text})
        body = {**self._body, "messages": self.messages}
        events = self._server.stream("/chat/completions", body)
        return RemoteRun(events, cancel, told="mlxfill" in self._body)

    def thoughts(self, run: RemoteRun) -> Callable[[str], bool]:
        """Told the texts of its reply in turn: whether each is reasoning."""
        return run.thinks

    def close(self, run: RemoteRun) -> Result:
        """Take the reply into the conversation."""
        self.last = run.result()
        self.messages.append(run.message())
        return self.last

    def forget_turn(self) -> None:
        """As if the newest line had not been said."""
        if self.messages and self.messages[-1]["role"] == "user":
            self.messages.pop()


def _body(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options as a request has them."""
    body: dict[str, Any] = {}
    for name, value in options.items():
        if name in SAME:
            body[name] = value
        elif name == "template_options":
            body["chat_template_kwargs"] = value
        else:
            raise InputError(f"--{name.replace('_', '-')} is the server's to decide: leave it out")
    return body
