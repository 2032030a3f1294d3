"""Tool calls in a reply, by mlx-lm's own parsers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def calls_in(
    tokenizer: Any,  # noqa: ANN401
    body: str,
    tools: Sequence[Mapping[str, Any]] | None,
) -> list[Mapping[str, Any]]:
    """The well-formed calls in what stands between two markers; none where something is broken.

    Each is ``{"name": ..., "arguments": {...}}``.
    """
    try:
        return list(_well_formed(tokenizer.tool_parser(body, list(tools or ()))))
    except Exception:  # noqa: BLE001 - a parser raises what it likes for text that is no call
        return []


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
