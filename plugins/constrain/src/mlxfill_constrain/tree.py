"""Where the schemas inside a JSON schema stand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Node = dict[str, Any]

ONE = frozenset(
    [
        "additionalItems",
        "additionalProperties",
        "contains",
        "else",
        "if",
        "items",
        "not",
        "propertyNames",
        "then",
        "unevaluatedItems",
        "unevaluatedProperties",
    ]
)
SEVERAL = frozenset({"allOf", "anyOf", "items", "oneOf", "prefixItems"})
NAMED = frozenset(
    ["$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"]
)
"""Keywords whose values are, or hold, schemas."""


def subschemas(node: Node) -> Iterator[object]:
    """The schemas right inside one."""
    for key, value in node.items():
        if key in NAMED and isinstance(value, dict):
            yield from value.values()
        elif key in SEVERAL and isinstance(value, list):
            yield from value
        elif key in ONE:
            yield value


def nodes(root: Node) -> list[Node]:
    """Every schema that is an object, ``root`` first and each before those inside it.

    What only a ``$ref`` takes for a schema is one as well.
    """
    found: dict[int, Node] = {}
    waiting: list[object] = [root]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict) and id(node) not in found:
            found[id(node)] = node
            waiting += [target(root, node), *subschemas(node)]
    return list(found.values())


def target(root: Node, node: Node) -> object:
    """What ``$ref`` points to by its place in ``root``; None where it does not."""
    said = node.get("$ref")
    if not isinstance(said, str) or not said.startswith("#") or said[1:2] not in {"", "/"}:
        return None
    place: object = root
    for part in said[2:].split("/") if said[1:] else ():
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(place, dict) and name in place:
            place = place[name]
        elif isinstance(place, list) and name.isdecimal() and int(name) < len(place):
            place = place[int(name)]
        else:
            return None
    return place
