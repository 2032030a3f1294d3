"""Schemas that only a value without end would satisfy: a list in a list in a list.

llguidance would begin such a value and never come to its end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlxfill import InputError
from mlxfill_constrain.names import matches
from mlxfill_constrain.normal import forbid
from mlxfill_constrain.tree import nodes, target

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mlxfill_constrain.tree import Node

MOST_ROUNDS = 64
"""References are followed in order; only those that go back take another round."""
NESTED = frozenset({"array", "object"})


def forbid_endless(root: Node) -> bool:
    """Let nothing satisfy the schemas inside ``root`` that no finite value satisfies.

    :returns: whether a finite one satisfies ``root``, which else is left as it is.
    """
    ends = Ends(root)
    if id(root) not in ends.finite:
        return False
    for node in ends.nodes:
        if id(node) not in ends.finite:
            forbid(node)
    return True


class Ends:
    """The smallest set of schemas that have a finite value, each because of others in it."""

    def __init__(self, root: Node) -> None:
        self.nodes = nodes(root)
        self.finite: set[int] = set()
        self._root = root
        for _ in range(MOST_ROUNDS):
            known = len(self.finite)
            for node in reversed(self.nodes):
                if self._has_end(node):
                    self.finite.add(id(node))
            if known == len(self.finite):
                return
        raise InputError("schema cannot be used: its references go round too many corners")

    def _ends(self, schema: object) -> bool:
        return id(schema) in self.finite if isinstance(schema, dict) else schema is not False

    def _has_end(self, node: Node) -> bool:
        if "$ref" in node and not self._ends(target(self._root, node)):
            return False
        some = [node[key] for key in ("anyOf", "oneOf") if key in node]
        if not all(map(self._ends, node.get("allOf", ()))):
            return False
        return all(any(map(self._ends, each)) for each in some) and self._type_ends(node)

    def _type_ends(self, node: Node) -> bool:
        kinds = node.get("type", "null")
        if not NESTED.issuperset([kinds] if isinstance(kinds, str) else kinds):
            return True
        return ("array" in kinds and self._list_ends(node)) or (
            "object" in kinds and self._object_ends(node)
        )

    def _list_ends(self, node: Node) -> bool:
        items, first = node.get("items", True), node.get("prefixItems", [])
        if isinstance(items, list):
            items, first = node.get("additionalItems", True), items
        least = node.get("minItems", 0)
        needed = [*first[:least], *([items] if least > len(first) else [])]
        return all(map(self._ends, needed))

    def _object_ends(self, node: Node) -> bool:
        return all(map(self._ends, _required(node)))


def _required(node: Node) -> Iterator[object]:
    """The schemas of the properties that an object must have."""
    properties, patterns = node.get("properties", {}), node.get("patternProperties", {})
    for name in node.get("required", ()):
        found = [properties[name]] if name in properties else []
        found += [schema for pattern, schema in patterns.items() if matches(pattern, name)]
        yield from found or [node.get("additionalProperties", True)]
