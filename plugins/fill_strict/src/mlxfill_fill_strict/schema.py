"""Whether a JSON value is legal under a schema.

The keywords are those that say what a value consists of; bounds of numbers and lengths, formats
and patterns are not looked at: whether a call is complete does not depend on them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

_TYPES: Final[Mapping[str, Callable[[Any], bool]]] = {
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: _is_number(value) and float(value).is_integer(),
    "number": lambda value: _is_number(value),  # noqa: PLW0108 - defined below
    "boolean": lambda value: isinstance(value, bool),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
    "null": lambda value: value is None,
}
_DEEPEST: Final = 32
"""Nesting beyond this is taken as illegal, so that a schema that refers to itself ends."""

Schema: TypeAlias = Mapping[str, Any]


def conforms(value: object, schema: object, root: object = None, depth: int = 0) -> bool:
    """Check ``value`` against ``schema``; ``root`` holds the definitions that it refers to."""
    if isinstance(schema, bool):
        return schema
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        return False
    root = schema if root is None else root
    return all(check(value, schema, root, depth + 1) for check in _CHECKS)


def _is_named(value: object, schema: Schema, _root: object, _depth: int) -> bool:
    """Type and listed values."""
    names = schema.get("type", list(_TYPES))
    names = names if isinstance(names, list) else [names]
    return (
        any(_TYPES[name](value) for name in names if name in _TYPES)
        and any(_same(value, each) for each in schema.get("enum", [value]))
        and _same(value, schema.get("const", value))
    )


def _is_combined(value: object, schema: Schema, root: object, depth: int) -> bool:
    """Other schemas that it refers to or is made of."""
    groups = [(all, schema.get("allOf", []))]
    groups += [(any, schema[word]) for word in ("anyOf", "oneOf") if word in schema]
    groups += [(all, [_resolve(schema["$ref"], root)])] if "$ref" in schema else []
    return all(
        enough(conforms(value, each, root, depth) for each in group) for enough, group in groups
    )


def _consists(value: object, schema: Schema, root: object, depth: int) -> bool:
    """Keys and values of an object, items of an array."""
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        other = "patternProperties" in schema or schema.get("additionalProperties", True)
        return set(schema.get("required", ())) <= value.keys() and all(
            conforms(each, properties.get(key, other), root, depth) for key, each in value.items()
        )
    items = schema.get("items", True)
    return not isinstance(value, list) or all(conforms(each, items, root, depth) for each in value)


_CHECKS: Final = (_is_named, _is_combined, _consists)


def _resolve(reference: object, root: object) -> object:
    """What a reference inside the same schema points to; nothing legal for any other."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        return False
    found = root
    for step in reference.split("/")[1:]:
        found = found.get(step, False) if isinstance(found, Mapping) else False
    return found


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _same(a: object, b: object) -> bool:
    """Equality that does not take True for 1."""
    return a == b and isinstance(a, bool) == isinstance(b, bool)
