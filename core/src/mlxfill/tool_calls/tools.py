"""Tools in OpenAI's format: what templates, and plugins that fill in calls, take for granted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mlxfill.errors import InputError, shown
from mlxfill.nearest import did_you_mean

FUNCTION, OBJECT = "function", "object"
"""Characters of a value that an error shows."""
_LIKE = '{"type": "function", "function": {"name": ...}}'


def check_tools(tools: object) -> None:
    """Raise ``InputError`` unless they are None or a list of tools: names what is wrong in which.

    A tool is a mapping with ``type`` "function" (which may be left out) and ``function``: a mapping
    with a ``name``, and perhaps a ``description`` and ``parameters``, a JSON schema of an object.
    """
    if tools is None:
        return
    if not isinstance(tools, Sequence) or isinstance(tools, str | bytes):
        raise InputError(f"tools must be a list of tools, not {shown(tools)}")
    names: set[str] = set()
    for at, tool in enumerate(tools):
        name = _named(tool, f"tool {at}")
        if name in names:
            raise InputError(f"tool {at}: another tool is named {shown(name)} as well")
        names.add(name)


def with_all_keys(tools: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The same tools with what OpenAI's format lets out: descriptions, and ``parameters``."""
    return [_filled(tool) for tool in tools]


def _filled(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    function = tool.get("function")
    if not isinstance(function, Mapping):
        return tool
    schema = function.get("parameters") or {}
    properties = schema.get("properties") or {}
    described = {
        key: {"description": "", **each} if isinstance(each, Mapping) else each
        for key, each in properties.items()
    }
    parameters = {"type": OBJECT, "required": [], **schema, "properties": described}
    return {**tool, "function": {"description": "", **function, "parameters": parameters}}


def _named(tool: object, where: str) -> str:
    """The name of a tool."""
    if not isinstance(tool, Mapping):
        raise InputError(f"{where} must be a mapping like {_LIKE}, not {shown(tool)}")
    kind, function = tool.get("type", FUNCTION), tool.get("function")
    if kind != FUNCTION:
        hint = did_you_mean(str(kind), [FUNCTION])
        raise InputError(f"{where}: type must be 'function', not {shown(kind)}{hint}")
    if not isinstance(function, Mapping):
        raise InputError(f"{where} has no function: it must be like {_LIKE}, not {shown(tool)}")
    name = function.get("name")
    if not isinstance(name, str) or not name:
        raise InputError(f"{where}: function.name must be a name, not {shown(name)}")
    description = function.get("description")
    if not isinstance(description, str | None):
        said = f"function.description must be a string, not {shown(description)}"
        raise InputError(f"{where}: {said}")
    _check_parameters(function.get("parameters"), f"{where}: function.parameters")
    return name


def _check_parameters(schema: object, where: str) -> None:
    if schema is None:
        return
    if not isinstance(schema, Mapping):
        raise InputError(f"{where} must be a JSON schema of an object, not {shown(schema)}")
    kind = schema.get("type", OBJECT)
    if kind != OBJECT:
        hint = did_you_mean(str(kind), [OBJECT])
        raise InputError(f"{where}.type must be 'object', not {shown(kind)}{hint}")
    properties = schema.get("properties", {})
    if not isinstance(properties, Mapping):
        raise InputError(f"{where}.properties must be a mapping, not {shown(properties)}")
