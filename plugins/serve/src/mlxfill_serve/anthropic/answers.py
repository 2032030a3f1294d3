"""A reply as Anthropic's message: content blocks, as one object or a stream of events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from attrs import frozen

from mlxfill import exactjson
from mlxfill_serve.answers import Answer, event
from mlxfill_serve.anthropic.errors import error_event
from mlxfill_serve.reply import CallArguments, CallBegun, CallBroken, Content, Reasoning

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mlxfill import Stats
    from mlxfill_serve.errors import ApiError
    from mlxfill_serve.jobs import Ended, Token
    from mlxfill_serve.reply import Part, ReplyReader

PING = b'event: ping\ndata: {"type":"ping"}\n\n'
_TEXTS = {"thinking": "thinking", "text": "text", "tool_use": "partial_json"}
_DELTAS = {"thinking": "thinking_delta", "text": "text_delta", "tool_use": "input_json_delta"}
Event = dict[str, Any]


class MessageChoice:
    """The one reply to a request.  ``blocks``: those that are over.

    ``stops``: the request's stop sequences.
    """

    def __init__(
        self,
        reader: ReplyReader,
        tokenizer: Any,  # noqa: ANN401 - mlx-lm's wrapper, untyped
        stops: Sequence[str] = (),
    ) -> None:
        self.reader, self.tokenizer, self._stops = reader, tokenizer, stops
        self.tokens: list[Token] = []
        self.blocks: list[dict[str, Any]] = []
        self.reasoning_tokens = 0
        self.stats: Stats | None = None
        self.stop_reason: str | None = None
        self.stop_sequence: str | None = None
        self._now: dict[str, Any] | None = None
        self._pieces: list[str] = []
        self._told_of = 0
        self._calls: dict[int, dict[str, Any]] = {}

    def feed(self, token: Token) -> Iterator[Event]:
        """The events that a token brings."""
        self.tokens.append(token)
        self.reasoning_tokens += self.reader.reasoning and token.id is not None
        for part in self.reader.feed(token.text):
            yield from self._told(part)

    def end(self, ended: Ended) -> Iterator[Event]:
        """The events that were held back, and the one that ends the last block."""
        for part in self.reader.end():
            yield from self._told(part)
        yield from self._stop()
        self.stats = ended.stats
        self.stop_reason = self._reason(ended.reason)

    def _reason(self, reason: str) -> str:
        if reason == "length":
            return "max_tokens"
        if self.reader.called:
            return "tool_use"
        self.stop_sequence = self._stopped_by() if reason == "stop" else None
        return "end_turn" if self.stop_sequence is None else "stop_sequence"

    def _stopped_by(self) -> str | None:
        """The stop sequence that ended the reply, which its text does not hold."""
        ids = [token.id for token in self.tokens if token.id is not None]
        if not ids or ids[-1] in self.tokenizer.eos_token_ids:
            return None
        text = self.tokenizer.decode(ids)
        found = [(text.find(stop), stop) for stop in self._stops if stop in text]
        return min(found)[1] if found else None

    def _told(self, part: Part) -> Iterator[Event]:
        match part:
            case Content(text):
                yield from self._write("text", text)
            case Reasoning(text):
                yield from self._write("thinking", text)
            case CallBegun(call, call_id, name):
                yield from self._stop()
                block = {"type": "tool_use", "id": call_id, "name": name, "input": {}}
                self._calls[call] = block
                yield self._start(block)
            case CallArguments(_, text):
                yield from self._write("tool_use", text)
            case CallBroken(call):  # a stream has told of it; it is no part of the message
                broken = self._calls.pop(call)
                if broken is self._now:
                    yield from self._stop()
                self.blocks = [block for block in self.blocks if block is not broken]

    def _write(self, kind: str, text: str) -> Iterator[Event]:
        if self._now is None or self._now["type"] != kind:
            yield from self._stop()
            more = {"signature": ""} if kind == "thinking" else {}
            yield self._start({"type": kind, _TEXTS[kind]: "", **more})
        self._pieces.append(text)
        delta = {"type": _DELTAS[kind], _TEXTS[kind]: text}
        yield {"type": "content_block_delta", "index": self._told_of, "delta": delta}

    def _start(self, block: dict[str, Any]) -> Event:
        self._now = block
        return {"type": "content_block_start", "index": self._told_of, "content_block": {**block}}

    def _stop(self) -> Iterator[Event]:
        block, text, self._now, self._pieces = self._now, "".join(self._pieces), None, []
        if block is None:
            return
        if block["type"] == "tool_use":
            block["input"] = _object(text)
        else:
            block[_TEXTS[block["type"]]] = text
        self.blocks.append(block)
        yield {"type": "content_block_stop", "index": self._told_of}
        self._told_of += 1


def _object(text: str) -> dict[str, Any]:
    """The arguments of a call; a reply that was cut may hold only their beginning."""
    try:
        value = exactjson.loads(text or "{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


@frozen(kw_only=True)
class MessageAnswer(Answer):
    """A message.  ``prompt_tokens``: of the prompt, all told."""

    alive: ClassVar[bytes] = PING
    choices: Sequence[MessageChoice]
    prompt_tokens: int
    with_origins: bool = False

    def told(self) -> dict[str, Any]:
        """The whole message."""
        (choice,) = self.choices
        ends = {"stop_reason": choice.stop_reason, "stop_sequence": choice.stop_sequence}
        return self._message(choice.blocks, self._counts(), **ends, **self._ours())

    def opening(self) -> bytes:
        """The message before its first block."""
        counts = {"input_tokens": self.prompt_tokens, "output_tokens": 0}
        none = {"stop_reason": None, "stop_sequence": None}
        return self.pieces(
            [{"type": "message_start", "message": self._message([], counts, **none)}]
        )

    def pieces(self, entries: Sequence[Event]) -> bytes:
        """Events under their names."""
        return b"".join(event(entry, entry["type"]) for entry in entries)

    def closing(self) -> bytes:
        """Why the message is over, and what it cost."""
        (choice,) = self.choices
        delta = {"stop_reason": choice.stop_reason, "stop_sequence": choice.stop_sequence}
        told = {"type": "message_delta", "delta": delta, "usage": self._counts(), **self._ours()}
        return self.pieces([told, {"type": "message_stop"}])

    def broken(self, error: ApiError) -> bytes:
        """Anthropic's error event."""
        return error_event(error)

    def _message(
        self,
        blocks: Sequence[dict[str, Any]],
        counts: dict[str, Any],
        **more: Any,  # noqa: ANN401 - JSON
    ) -> dict[str, Any]:
        return {
            "id": f"msg_{self.key}",
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": list(blocks),
            "usage": counts,
            **more,
        }

    def _counts(self) -> dict[str, Any]:
        """What the message cost; prompt tokens that were read before count apart."""
        cost = self.usage()
        cached = cost["prompt_tokens_details"]["cached_tokens"]
        return {
            "input_tokens": cost["prompt_tokens"] - cached,
            "cache_read_input_tokens": cached,
            "cache_creation_input_tokens": 0,
            "output_tokens": cost["completion_tokens"],
        }

    def _ours(self) -> dict[str, Any]:
        """What mlxfill adds, for those who have asked."""
        told = self.audit()
        if self.with_origins:
            tokens = self.choices[0].tokens
            told["tokens"] = [{"text": t.text, "token": t.id, "origin": t.origin} for t in tokens]
        return {"mlxfill": told} if told else {}
