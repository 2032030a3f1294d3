"""One choice of an answer in OpenAI's shapes, as a stream and as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mlxfill_serve.logprobs import TextLogprobs, TokenTexts, chat_logprobs
from mlxfill_serve.reply import CallArguments, CallBegun, CallBroken, Content, Reasoning

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from mlxfill import Stats
    from mlxfill_serve.jobs import Ended, Token
    from mlxfill_serve.reply import Part, ReplyReader


class ChatChoice:
    """A choice of a chat completion.

    ``with_logprobs`` and ``with_origins``: what is said of each token.  ``with_reasoning``: whether
    the client wants to see what the model thinks.
    """

    def __init__(  # noqa: PLR0913 - what a client wants to see
        self,
        index: int,
        reader: ReplyReader,
        tokenizer: Any,  # noqa: ANN401 - mlx-lm's wrapper, untyped
        *,
        with_logprobs: bool,
        with_origins: bool,
        with_reasoning: bool = True,
    ) -> None:
        self.with_reasoning = with_reasoning
        self.index, self.reader, self.tokenizer = index, reader, tokenizer
        self.with_logprobs, self.with_origins = with_logprobs, with_origins
        self.tokens: list[Token] = []
        self._texts = TokenTexts(tokenizer)
        self.parts: list[Part] = []
        self.reasoning_tokens = 0
        self.stats: Stats | None = None
        self.finish_reason: str | None = None

    # --- as a stream ------------------------------------------------------------------

    def opening(self) -> dict[str, Any]:
        """The first delta, which names the role."""
        return self._delta({"role": "assistant", "content": ""})

    def feed(self, token: Token) -> Iterator[dict[str, Any]]:
        """The deltas that a token brings, often one, as entries of ``choices``."""
        self.reasoning_tokens += self.reader.reasoning and token.id is not None
        parts = self._wanted(self.reader.feed(token.text))
        self.tokens.append(token)
        self.parts += parts
        first: dict[str, Any] = {}
        if self.with_logprobs and token.id is not None:
            first["logprobs"] = self._logprobs([token])
        if self.with_origins:
            first["mlxfill"] = {"origin": token.origin, "token": token.id, "text": token.text}
        deltas = _deltas(parts) or ([{}] if first else [])
        for delta in deltas:
            yield {**self._delta(delta), **first}
            first = {}

    def end(self, ended: Ended) -> Iterator[dict[str, Any]]:
        """The deltas that were held back, and the one that says why the reply is over."""
        rest = self._wanted(self.reader.end())
        self.parts += rest
        self.stats = ended.stats
        stopped = ended.reason == "stop"
        self.finish_reason = "tool_calls" if stopped and self.reader.called else ended.reason
        yield from (self._delta(delta) for delta in _deltas(rest))
        yield self._delta({}, self.finish_reason)

    def _wanted(self, parts: Iterable[Part]) -> list[Part]:
        return [part for part in parts if self.with_reasoning or not isinstance(part, Reasoning)]

    def _delta(self, delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
        return {
            "index": self.index,
            "delta": delta,
            "logprobs": None,
            "finish_reason": finish_reason,
        }

    # --- as a whole -------------------------------------------------------------------

    def whole(self) -> dict[str, Any]:
        """An entry of ``choices``."""
        choice: dict[str, Any] = {
            "index": self.index,
            "message": message(self.parts),
            "logprobs": self._logprobs(self.tokens) if self.with_logprobs else None,
            "finish_reason": self.finish_reason,
        }
        if self.with_origins:
            told = [{"text": t.text, "token": t.id, "origin": t.origin} for t in self.tokens]
            choice["mlxfill"] = {"tokens": told}
        return choice

    def _logprobs(self, tokens: Iterable[Token]) -> dict[str, Any]:
        return chat_logprobs(self._texts, tokens, next(iter(self.tokens), None))


def _deltas(parts: Iterable[Part]) -> list[dict[str, Any]]:
    """What a stream tells; a broken call ends without a word of its own, as no such reply does."""
    return [_delta(part) for part in parts if not isinstance(part, CallBroken)]


def _delta(part: Content | Reasoning | CallBegun | CallArguments) -> dict[str, Any]:
    match part:
        case Content(text):
            return {"content": text}
        case Reasoning(text):
            return {"reasoning_content": text}
        case CallBegun(index, call_id, name):
            begun = {"name": name, "arguments": ""}
            call = {"index": index, "id": call_id, "type": "function", "function": begun}
            return {"tool_calls": [call]}
        case CallArguments(index, text):
            return {"tool_calls": [{"index": index, "function": {"arguments": text}}]}


def message(parts: Iterable[Part]) -> dict[str, Any]:
    """The message that the parts of a reply make up."""
    content, reasoning = "", ""
    found: dict[int, dict[str, Any]] = {}
    for part in parts:
        match part:
            case Content(text):
                content += text
            case Reasoning(text):
                reasoning += text
            case CallBegun(index, call_id, name):
                begun = {"name": name, "arguments": ""}
                found[index] = {"id": call_id, "type": "function", "function": begun}
            case CallArguments(index, text):
                found[index]["function"]["arguments"] += text
            case CallBroken(index):
                del found[index]
    calls = list(found.values())
    made: dict[str, Any] = {"role": "assistant", "content": content or None, "refusal": None}
    if not calls:
        made["content"] = content
    if reasoning:
        made["reasoning_content"] = reasoning
    if calls:
        made["tool_calls"] = calls
    return made


class TextChoice:
    """A choice of a text completion."""

    def __init__(
        self,
        index: int,
        tokenizer: Any,  # noqa: ANN401 - mlx-lm's wrapper, untyped
        echoed: str,
        *,
        with_logprobs: bool,
        with_origins: bool,
    ) -> None:
        """``echoed``: what stands before the text."""
        self.index, self.tokenizer, self.echoed = index, tokenizer, echoed
        self.with_origins = with_origins
        self.tokens: list[Token] = []
        self.reasoning_tokens = 0
        self.stats: Stats | None = None
        self.finish_reason: str | None = None
        self._logprobs = TextLogprobs(tokenizer, len(echoed)) if with_logprobs else None

    def opening(self) -> dict[str, Any]:
        """The first chunk: what is echoed."""
        return self._chunk(self.echoed)

    def scored(self, prompt: Sequence[Token]) -> Iterator[dict[str, Any]]:
        """The log-probabilities of the prompt, which is echoed."""
        if self._logprobs is not None:
            told = self._logprobs.add_prompt(prompt, self.echoed)
            yield {**self._chunk(""), "logprobs": told}

    def feed(self, token: Token) -> Iterator[dict[str, Any]]:
        """What a token brings, as an entry of ``choices``."""
        self.tokens.append(token)
        chunk = self._chunk(token.text)
        if self._logprobs is not None and token.id is not None:
            chunk["logprobs"] = self._logprobs.add(token)
        if self.with_origins:
            chunk["mlxfill"] = {"origin": token.origin, "token": token.id, "text": token.text}
        if token.text or self._logprobs is not None or self.with_origins:
            yield chunk

    def end(self, ended: Ended) -> Iterator[dict[str, Any]]:
        """The chunk that says why the text is over."""
        self.stats, self.finish_reason = ended.stats, ended.reason
        yield self._chunk("", self.finish_reason)

    def _chunk(self, text: str, finish_reason: str | None = None) -> dict[str, Any]:
        return {
            "index": self.index,
            "text": text,
            "logprobs": None,
            "finish_reason": finish_reason,
        }

    def whole(self) -> dict[str, Any]:
        """An entry of ``choices``."""
        text = self.echoed + "".join(token.text for token in self.tokens)
        choice = self._chunk(text, self.finish_reason)
        if self._logprobs is not None:
            choice["logprobs"] = self._logprobs.whole
        if self.with_origins:
            told = [{"text": t.text, "token": t.id, "origin": t.origin} for t in self.tokens]
            choice["mlxfill"] = {"tokens": told}
        return choice
