"""A line for each answered request, for the operator; nothing of what was said."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mlxfill_serve.answers import Answer

OFF, TEXT, JSON = "off", "text", "json"
CLIENT_GONE = 499
"""The status of a request whose client left before it was answered, as nginx has it."""


class RequestLog:
    """Writes on standard error, as ``text`` (``key=value``) or one ``json`` object a line."""

    def __init__(self, kind: str) -> None:
        self._as_json = kind == JSON

    def tell(  # noqa: PLR0913 - what is known of a request
        self,
        method: str,
        path: str,
        status: int,
        *,
        first_byte: float | None,
        seconds: float,
        answer: Answer | None,
    ) -> None:
        """One request that is over.

        :param first_byte: seconds until the answer began, None where none did.
        :param answer: what was generated, None where nothing was.
        """
        told: dict[str, Any] = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "method": method,
            "path": path,
            "status": status,
            "first_byte_s": None if first_byte is None else round(first_byte, 4),
            "seconds": round(seconds, 4),
            **(_generated(answer) if answer is not None else {}),
        }
        if self._as_json:
            line = json.dumps(told)
        else:
            head = [str(told.pop(name)) for name in ("time", "method", "path", "status")]
            line = " ".join([*head, *(f"{k}={v}" for k, v in told.items() if v is not None)])
        print(line, file=sys.stderr, flush=True)  # noqa: T201


def _generated(answer: Answer) -> dict[str, Any]:
    """What an answer cost, also one that nobody waited for."""
    stats = [choice.stats for choice in answer.choices if choice.stats is not None]
    written = sum(token.id is not None for choice in answer.choices for token in choice.tokens)
    forwards = sum(each.target_forwards for each in stats)
    prompts = stats[:: answer.replies]
    return {
        "model": answer.model,
        "prompt_tokens": sum(each.prompt_tokens for each in prompts),
        "cached_tokens": sum(each.cached_tokens for each in prompts),
        "completion_tokens": written,
        "tokens_per_forward": round(written / forwards, 3) if forwards else None,
    }
