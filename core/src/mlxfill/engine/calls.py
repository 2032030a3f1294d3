"""Tool calls in a reply, by mlx-lm's own parsers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def tool_calls(
    tokenizer: Any,  # noqa: ANN401
    text: str,
    tools: Sequence[Mapping[str, Any]] | None,
) -> list[Mapping[str, Any]]:
    """The well-formed calls in ``text``, each ``{"name": ..., "arguments": {...}}``."""
    if not tools or not getattr(tokenizer, "has_tool_calling", False):
        return []
    start, end, parse = tokenizer.tool_call_start, tokenizer.tool_call_end, tokenizer.tool_parser
    calls: list[Mapping[str, Any]] = []
    for part in text.split(start)[1:]:
        body = part.split(end)[0] if end else part
        try:
            found = parse(body, list(tools))
        except Exception:  # noqa: BLE001, S112 - a parser raises what it likes for text that is no call
            continue
        calls += found if isinstance(found, list) else [found]
    return calls
