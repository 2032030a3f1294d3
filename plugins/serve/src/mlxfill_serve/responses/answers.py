"""Answers to requests for a response: one object, or a stream of events."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

from attrs import field, frozen

from mlxfill_serve.answers import Answer, event

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from mlxfill_serve.errors import ApiError
    from mlxfill_serve.responses.bodies import ResponsesBody
    from mlxfill_serve.responses.choice import ResponseChoice
    from mlxfill_serve.responses.items import Event

_WORDS = {
    "prompt_tokens": "input_tokens",
    "prompt_tokens_details": "input_tokens_details",
    "completion_tokens": "output_tokens",
    "completion_tokens_details": "output_tokens_details",
}
"""Counts of a chat completion, and what they are called here."""
_ECHOED = (
    "instructions",
    "max_output_tokens",
    "previous_response_id",
    "prompt_cache_key",
    "safety_identifier",
    "temperature",
    "top_logprobs",
    "top_p",
    "user",
)
"""Fields that stand in the response as they stood in the request."""


@frozen(kw_only=True)
class ResponseAnswer(Answer):
    """A response.  ``keep`` is told of its id and output when it is complete."""

    choices: Sequence[ResponseChoice]
    body: ResponsesBody
    keep: Callable[[str, Sequence[dict[str, Any]]], None] | None = None
    _numbers: Iterator[int] = field(factory=count, init=False)

    @property
    def name(self) -> str:
        """The id."""
        return f"resp_{self.key}"

    def told(self) -> dict[str, Any]:
        """The complete response.  From now on others can go on from it."""
        (choice,) = self.choices
        if self.keep is not None:
            self.keep(self.name, choice.output)
        why = "max_output_tokens" if choice.finish_reason == "length" else None
        why = "malformed_function_call" if choice.is_broken and why is None else why
        return self._response(
            "incomplete" if why else "completed",
            incomplete_details={"reason": why} if why else None,
            usage=_usage(self.usage()),
            **self._ours(),
        )

    def opening(self) -> bytes:
        """The response before its first item."""
        begun = self._response("in_progress")
        kinds = ("response.created", "response.in_progress")
        return self.pieces([{"type": kind, "response": begun} for kind in kinds])

    def pieces(self, entries: Sequence[Event]) -> bytes:
        """Events with their numbers."""
        return b"".join(
            event({**entry, "sequence_number": next(self._numbers)}, entry["type"])
            for entry in entries
        )

    def closing(self) -> bytes:
        """The event with the complete response."""
        response = self.told()
        return self.pieces([{"type": f"response.{response['status']}", "response": response}])

    def broken(self, error: ApiError) -> bytes:
        """The response as far as it came."""
        why = {"code": "server_error", "message": error.message}
        failed = self._response("failed", error=why)
        return self.pieces([{"type": "response.failed", "response": failed}])

    def _response(self, status: str, **known: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
        return {
            "id": self.name,
            "object": "response",
            "created_at": self.created,
            "status": status,
            "model": self.model,
            "error": None,
            "incomplete_details": None,
            "output": list(self.choices[0].output),
            "usage": None,
            **_echo(self.body),
            **known,
        }

    def _ours(self) -> dict[str, Any]:
        """What mlxfill adds, for those who have asked."""
        asked, told = self.body.mlxfill, self.audit()
        if asked is not None and asked.origins:
            tokens = self.choices[0].tokens
            told["tokens"] = [{"text": t.text, "token": t.id, "origin": t.origin} for t in tokens]
        return {"mlxfill": told} if told else {}


def no_response(error: ApiError) -> bytes:
    """The event of a stream that has no response to tell of."""
    told = {"code": error.code, "message": error.message, "param": error.param}
    return event({"type": "error", **told, "sequence_number": 0}, "error")


def _echo(body: ResponsesBody) -> dict[str, Any]:
    """What clients want to find of their request in a response."""
    choice, text = body.tool_choice or "auto", body.text
    return {
        **{name: getattr(body, name) for name in _ECHOED},
        "background": False,
        "metadata": body.metadata or {},
        "parallel_tool_calls": body.parallel_tool_calls is not False,
        "reasoning": {"effort": None if body.reasoning is None else body.reasoning.effort},
        "service_tier": "default",
        "store": body.store is not False,
        "text": {"format": (text and text.format) or {"type": "text"}},
        "tool_choice": choice if isinstance(choice, str) else choice.model_dump(),
        "tools": [tool.model_dump(exclude_unset=True) for tool in body.tools or ()],
        "truncation": "disabled",
    }


def _usage(counts: dict[str, Any]) -> dict[str, Any]:
    """Counts under the names that they have in a response; ours stay what they are."""
    told = {_WORDS.get(name, name): value for name, value in counts.items()}
    # What a provider asks money for: here nothing is written into a cache that was not read anyway.
    told["input_tokens_details"] = {**told["input_tokens_details"], "cache_write_tokens": 0}
    return told
