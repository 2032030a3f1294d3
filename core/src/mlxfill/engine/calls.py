"""Tool calls in a reply, by mlx-lm's own parsers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def tool_calls(
    tokenizer: Any,  # noqa: ANN401
    text: str,
    tools: Sequence[Mapping[str, Any]] | None,
) -> list[Mapping[str, Any]]:
    """The well-formed calls in ``text``, each ``{"name": ..., "arguments": {...}}``."""
    if not tools or not getattr(tokenizer, "has_tool_calling", False):
        return []
    calls: list[Mapping[str, Any]] = []
    for body in _bodies(text, tokenizer.tool_call_start, tokenizer.tool_call_end):
        try:
            calls += _well_formed(tokenizer.tool_parser(body, list(tools)))
        except Exception:  # noqa: BLE001, S112 - a parser raises what it likes for text that is no call
            continue
    return calls


def _bodies(text: str, start: str, end: str | None) -> Iterator[str]:
    """What stands between the markers, where another start is data; "" ends with the next start."""
    _, found, rest = text.partition(start)
    while found:
        body, found, rest = rest.partition(end or start)
        yield body
        if end:
            _, found, rest = rest.partition(start)


def _well_formed(found: object) -> Iterator[Mapping[str, Any]]:
    """The calls among what a parser found: any JSON, or Python literals that are none.

    Raises ``TypeError`` or ``ValueError`` for arguments that no JSON can hold.
    """
    for call in found if isinstance(found, list) else [found]:
        if not isinstance(call, Mapping) or not isinstance(call.get("name"), str):
            continue
        arguments = call.get("arguments") or {}
        arguments = json.loads(arguments) if isinstance(arguments, str) else arguments
        if isinstance(arguments, Mapping):
            whole = {**call, "arguments": arguments}
            json.dumps(whole, allow_nan=False, ensure_ascii=False).encode()
            yield whole
