"""A reply in lines of JSON, as Ollama's clients read it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar

from attrs import frozen
from starlette.responses import JSONResponse

from mlxfill import exactjson
from mlxfill_serve.answers import Answer
from mlxfill_serve.reply import CallArguments, CallBegun, CallBroken, Content, Reasoning

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mlxfill import Stats
    from mlxfill_serve.errors import ApiError
    from mlxfill_serve.jobs import Ended, Token
    from mlxfill_serve.reply import Part, ReplyReader

NANO = 1_000_000
"""Nanoseconds of a millisecond: Ollama tells durations so."""


class LineChoice:
    """The one reply.  A call is told when it is whole: its arguments are an object here."""

    def __init__(self, reader: ReplyReader, tokenizer: Any) -> None:  # noqa: ANN401 - mlx-lm's
        self.reader, self.tokenizer = reader, tokenizer
        self.tokens: list[Token] = []
        self.reasoning_tokens = 0
        self.stats: Stats | None = None
        self.reason = "stop"
        self.said: dict[str, str] = {"content": "", "thinking": ""}
        self.calls: list[dict[str, Any]] = []
        self._names: dict[int, str] = {}
        self._arguments: dict[int, str] = {}

    def feed(self, token: Token) -> Iterator[dict[str, Any]]:
        """The messages that a token brings."""
        self.tokens.append(token)
        self.reasoning_tokens += self.reader.reasoning and token.id is not None
        for part in self.reader.feed(token.text):
            yield from self._told(part)

    def end(self, ended: Ended) -> Iterator[dict[str, Any]]:
        """What was held back."""
        for part in self.reader.end():
            yield from self._told(part)
        yield from self._whole_calls()
        self.stats, self.reason = ended.stats, ended.reason

    def _told(self, part: Part) -> Iterator[dict[str, Any]]:
        match part:
            case Content(text):
                self.said["content"] += text
                yield {"content": text}
            case Reasoning(text):
                self.said["thinking"] += text
                yield {"content": "", "thinking": text}
            case CallBegun(call, _, name):
                yield from self._whole_calls()
                self._names[call], self._arguments[call] = name, ""
            case CallArguments(call, text):
                self._arguments[call] += text
            case CallBroken(call):
                self._names.pop(call, None)

    def _whole_calls(self) -> Iterator[dict[str, Any]]:
        for call, name in self._names.items():
            try:
                arguments = exactjson.loads(self._arguments[call] or "{}")
            except ValueError:
                continue  # a reply that was cut in the middle of a call
            told = {"function": {"name": name, "arguments": arguments}}
            self.calls.append(told)
            yield {"content": "", "tool_calls": [told]}
        self._names.clear()


@frozen(kw_only=True)
class LineAnswer(Answer):
    """``chat``: whether the reply is a message, or the text that ``/api/generate`` tells."""

    alive: ClassVar[bytes] = b""  # clients take each line for JSON
    choices: Sequence[LineChoice]
    chat: bool

    def told(self) -> dict[str, Any]:
        """The whole reply."""
        (choice,) = self.choices
        thinking = {"thinking": choice.said["thinking"]} if choice.said["thinking"] else {}
        calls = {"tool_calls": choice.calls} if choice.calls else {}
        message = {"content": choice.said["content"], **thinking, **calls}
        return {**self._line(message), **self._end()}

    def opening(self) -> bytes:
        """Nothing: the first line is that of the first text."""
        return b""

    def pieces(self, entries: Sequence[dict[str, Any]]) -> bytes:
        """A line for each."""
        return b"".join(line({**self._line(entry), "done": False}) for entry in entries)

    def closing(self) -> bytes:
        """The line with the counts."""
        return line({**self._line({"content": ""}), **self._end()})

    def broken(self, error: ApiError) -> bytes:
        """Ollama's error object."""
        return line(error_body(error))

    def _line(self, message: dict[str, Any]) -> dict[str, Any]:
        head = {"model": self.model, "created_at": datetime.now(UTC).isoformat()}
        if self.chat:
            return {**head, "message": {"role": "assistant", **message}}
        thinking = {"thinking": message["thinking"]} if "thinking" in message else {}
        return {**head, "response": message["content"], **thinking}

    def _end(self) -> dict[str, Any]:
        cost = self.usage()
        read, decoded = (round(cost[name] * NANO) for name in ("prefill_ms", "decode_ms"))
        return {
            "done": True,
            "done_reason": self.choices[0].reason,
            "total_duration": read + decoded,
            "load_duration": 0,
            "prompt_eval_count": cost["prompt_tokens"],
            "prompt_eval_duration": read,
            "eval_count": cost["completion_tokens"],
            "eval_duration": decoded,
        }


def line(told: dict[str, Any]) -> bytes:
    """A line of JSON."""
    return json.dumps(told, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def error_body(error: ApiError) -> dict[str, Any]:
    """Ollama's error object."""
    return {"error": error.message}


def error_response(error: ApiError) -> JSONResponse:
    """The whole answer."""
    return JSONResponse(error_body(error), error.status, error.headers)
