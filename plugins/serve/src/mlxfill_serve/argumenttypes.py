"""What types of values a JSON schema leaves to an argument."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

MOST = 64
"""Schemas that are looked at for one argument: they may refer to each other without end."""
UNIONS = ("anyOf", "oneOf")
TELLING = frozenset({"$ref", "const", "enum", *UNIONS})
"""What else than ``type`` tells a type."""


def with_types(tools: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The same tools, with a type for each argument that leaves one only.

    mlx-lm's parsers look at ``type`` alone where a template does not tell a number from a text;
    Pydantic writes references and ``anyOf``.
    """
    return [{**tool, "function": _with_types(tool.get("function") or {})} for tool in tools]


def _with_types(function: Mapping[str, Any]) -> Mapping[str, Any]:
    parameters = function.get("parameters")
    properties = parameters.get("properties") if isinstance(parameters, Mapping) else None
    if not isinstance(parameters, Mapping) or not isinstance(properties, Mapping):
        return function
    typed = {key: _typed(schema, parameters) for key, schema in properties.items()}
    return {**function, "parameters": {**parameters, "properties": typed}}


def _typed(schema: object, root: Mapping[str, Any]) -> object:
    if not isinstance(schema, Mapping) or "type" in schema or TELLING.isdisjoint(schema):
        return schema
    kinds = {kind for each in branches(schema, root) for kind in _kinds(each)} - {"null"}
    return {**schema, "type": kinds.pop()} if len(kinds) == 1 else schema


def _kinds(schema: Mapping[str, Any]) -> list[str]:
    listed = [schema["const"]] if "const" in schema else schema.get("enum")
    return list(map(type_of, listed)) if isinstance(listed, list) else types_of(schema)


def branches(schema: object, root: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The schemas of which a value must satisfy one; not all of them where they are ``MOST``."""
    found: list[Mapping[str, Any]] = []
    waiting, seen = deque([schema]), 0
    while waiting and seen < MOST:
        each, seen = waiting.popleft(), seen + 1
        if not isinstance(each, Mapping):
            found += [{}] if each is True else []
        elif isinstance(each.get("$ref"), str):
            waiting.append(_resolved(each["$ref"], root))
        elif union := [word for word in UNIONS if isinstance(each.get(word), list)]:
            waiting.extend(each[union[0]])
        else:
            found.append(each)
    return found


def _resolved(reference: str, root: Mapping[str, Any]) -> object:
    found: object = root
    for step in reference.removeprefix("#").split("/")[1:]:
        found = found.get(step) if isinstance(found, Mapping) else None
    return found


def types_of(schema: Mapping[str, Any]) -> list[str]:
    """The types that a schema names or means; a text where it says nothing."""
    named = schema.get("type")
    if isinstance(named, list):
        return [kind for kind in named if isinstance(kind, str)]
    if isinstance(named, str):
        return [named]
    return ["object" if "properties" in schema else "array" if "items" in schema else "string"]


def type_of(value: object) -> str:
    """The type of a JSON value."""
    if isinstance(value, bool):
        return "boolean"
    names = {str: "string", int: "integer", float: "number", list: "array", dict: "object"}
    return names.get(type(value), "null")
