"""What the tools of a request let a model write: names, keys, and whether other keys are legal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import field, frozen

_SAYS_MORE = (
    "$ref",
    "allOf",
    "anyOf",
    "dependentSchemas",
    "else",
    "if",
    "not",
    "oneOf",
    "patternProperties",
    "propertyNames",
    "then",
)
"""Keywords beside ``properties`` by which the keys of an object may be other than listed."""


@frozen
class Tool:
    """One tool.  ``keys`` in the order of the schema; ``closed``: no other key is legal."""

    name: str
    keys: tuple[str, ...]
    required: frozenset[str]
    closed: bool
    parameters: Mapping[str, Any] = field(eq=False, repr=False)

    @property
    def takes_one(self) -> bool:
        """Whether its argument object always has the same single key."""
        return self.closed and len(self.keys) == 1 and self.required == set(self.keys)

    @property
    def takes_none(self) -> bool:
        """Whether its argument object is always empty."""
        return self.closed and not self.keys


def read_tools(tools: Sequence[Mapping[str, Any]] | None) -> tuple[Tool, ...]:
    """The tools of a request; none at all when one of them is malformed or two share a name."""
    found = [_read_tool(tool) for tool in tools or ()]
    known = tuple(tool for tool in found if tool is not None)
    names = {tool.name for tool in known}
    return known if len(names) == len(found) else ()


def _read_tool(tool: object) -> Tool | None:
    function = tool.get("function", tool) if isinstance(tool, Mapping) else None
    name = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(name, str) or not name.strip():
        return None
    parameters = function.get("parameters")
    if parameters is None:
        return Tool(name, (), frozenset(), closed=True, parameters={"additionalProperties": False})
    keys = _keys_of(parameters)
    if keys is None:
        return None
    listed, required = keys
    closed = (
        parameters.get("type", "object") == "object"
        and parameters.get("additionalProperties") is False
        and not any(word in parameters for word in _SAYS_MORE)
        and required <= set(listed)
    )
    return Tool(name, listed, required, closed, parameters)


def _keys_of(parameters: object) -> tuple[tuple[str, ...], frozenset[str]] | None:
    """The keys that a schema lists, and those that it requires; None when it is malformed."""
    if not isinstance(parameters, Mapping):
        return None
    properties, required = parameters.get("properties", {}), parameters.get("required", ())
    if not isinstance(properties, Mapping) or not isinstance(required, list | tuple):
        return None
    if not all(isinstance(key, str) for key in (*properties, *required)):
        return None
    return tuple(properties), frozenset(required)
