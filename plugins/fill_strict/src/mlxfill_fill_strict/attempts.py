"""What to try: values, keys and plain replies that begin in every way tokenizers tell apart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from mlxfill_fill_strict.tools import Tool

ODD_TEXTS: Final = (
    "alpha",
    "Omega",
    "7 days",
    '"so"',
    "/etc",
    "{it}",
    "<b>",
    "-x",
    "\nline",
    " pad",
    "日本",
    "",
)
_NUMBER: Final = 7
_SAMPLES: Final[Mapping[str, Any]] = {
    "array": [_NUMBER],
    "boolean": True,
    "null": None,
    "object": {"alpha": _NUMBER},
}
"""Values of the types that are neither text nor number."""

PLAIN_REPLIES: Final = (
    "alpha",
    "Omega 9",
    "42 of them",
    '"So it is"',
    "(it is)",
    "{\n",
    '{"name": "Ada", "age": 36}',
    '[{"name": "Ada"}]',
    "```json\n{}\n```",
    "<b>alpha</b>",
    "# Alpha",
    "- alpha",
    "**alpha**",
    "/etc/hosts",
    "日本",
)


def first_arguments(tool: Tool) -> list[dict[str, Any]]:
    """Argument objects whose renderings share exactly what every call of ``tool`` begins with."""
    if tool.takes_one:
        return with_values(tool, tool.keys[0])
    keys = [*tool.keys, *(() if tool.closed else (k for k in ODD_TEXTS if k not in tool.keys))]
    found: list[dict[str, Any]] = [{key: ODD_TEXTS[0]} for key in keys]
    return found if tool.required else [*found, {}]


def with_values(tool: Tool, key: str) -> list[dict[str, Any]]:
    """Argument objects with one key and values that begin in every way."""
    schema = (tool.parameters.get("properties") or {}).get(key)
    wanted = schema.get("type") if isinstance(schema, Mapping) else None
    names = wanted if isinstance(wanted, list) else [wanted]
    legal = [_SAMPLES[name] for name in names if isinstance(name, str) and name in _SAMPLES]
    return [{key: value} for value in (*ODD_TEXTS, _NUMBER, *legal)]
