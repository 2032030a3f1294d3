"""A JSON schema as llguidance reads it right: the same meaning, in fewer words.

llguidance refuses keywords that it does not know, even where they rule nothing out; some of those
that it knows it reads wrongly when they stand apart from each other or beside another draft's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from mlxfill_constrain.metaschema import DRAFTS, TYPES, draft_of
from mlxfill_constrain.tree import Node, nodes

ANNOTATIONS = frozenset(
    [
        "$comment",
        "contentEncoding",
        "contentMediaType",
        "contentSchema",
        "default",
        "deprecated",
        "description",
        "examples",
        "readOnly",
        "title",
        "writeOnly",
    ]
)
FORMATS = frozenset(
    ["date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uri", "uuid"]
)
"""Those that llguidance enforces.  Any other is an annotation, as JSON Schema has it."""
APPLICATORS = frozenset({"$ref", "allOf", "anyOf", "const", "enum", "oneOf"})
"""Applied by llguidance one by one; what stands between them, it reads together."""
OF_TEXT = frozenset({"format", "maxLength", "minLength", "pattern"})
OF_NUMBERS = frozenset({"exclusiveMaximum", "exclusiveMinimum", "maximum", "minimum", "multipleOf"})
OF_LISTS = frozenset(
    [
        "additionalItems",
        "contains",
        "items",
        "maxItems",
        "minItems",
        "prefixItems",
        "unevaluatedItems",
        "uniqueItems",
    ]
)
OF_OBJECTS = frozenset(
    [
        "additionalProperties",
        "dependencies",
        "dependentRequired",
        "dependentSchemas",
        "maxProperties",
        "minProperties",
        "patternProperties",
        "properties",
        "propertyNames",
        "required",
        "unevaluatedProperties",
    ]
)
OF_ANY = APPLICATORS | {"$dynamicRef", "$recursiveRef", "else", "if", "not", "then", "type"}
RULES = OF_ANY | OF_TEXT | OF_NUMBERS | OF_LISTS | OF_OBJECTS
"""Keywords that may rule a value out."""


def normalize(root: Node) -> None:
    """Bring all of a schema into the form that llguidance reads right."""
    draft = draft_of(root)
    for node in reversed(nodes(root)):
        _as_latest(node, draft)
        _drop_empty(node)
        _choose(node)
        _together(node)


def every(schema: object) -> bool:
    """Whether any value at all satisfies a schema that was normalized."""
    return schema is True or (isinstance(schema, dict) and RULES.isdisjoint(schema))


def never(schema: object) -> bool:
    """Whether a schema that was normalized says at once that no value satisfies it."""
    return schema is False or (
        isinstance(schema, dict) and any(never(each) for each in schema.get("allOf", ()))
    )


def forbid(node: Node) -> None:
    """Let no value satisfy a schema."""
    kept = {str(key): node[key] for key in ("$defs", "definitions") if key in node}
    node.clear()
    node.update(kept, allOf=[False])


def combines(root: Node) -> bool:
    """Whether a value has to satisfy several schemas of a normalized one at a time."""
    for node in nodes(root):
        rules = RULES.intersection(node)
        if rules & APPLICATORS and (len(rules) > 1 or len(node.get("allOf", ())) > 1):
            return True
    return False


# --- drafts -------------------------------------------------------------------------------


def _as_latest(node: Node, draft: str) -> None:
    """The words of the latest draft for those of an older one."""
    if node.get("$schema") not in {None, *DRAFTS, *(f"{name}#" for name in DRAFTS)}:
        del node["$schema"]
    if "2020" in draft:
        node.pop("additionalItems", None)
        return
    node.pop("prefixItems", None)
    if "2019" not in draft and "$ref" in node:
        for key in RULES.intersection(node) - {"$ref"}:
            del node[key]
    for side in ("minimum", "maximum"):
        key = f"exclusive{side.title()}"
        if isinstance(node.get(key), bool) and node.pop(key) and side in node:
            node[key] = node.pop(side)


# --- what rules nothing out -----------------------------------------------------------------


def _drop_empty(node: Node) -> None:
    for key in ANNOTATIONS.intersection(node):
        del node[key]
    if isinstance(node.get("allOf"), list):
        node["allOf"] = [each for each in node["allOf"] if not every(each)]
    for key, is_empty in EMPTY.items():
        if key in node and is_empty(node[key], node):
            del node[key]
    if not {"$ref", "allOf", "anyOf", "if", "not", "oneOf"}.intersection(node):
        for key, same in (("Properties", "additionalProperties"), ("Items", "items")):
            if f"unevaluated{key}" in node and same not in node:
                node[same] = node.pop(f"unevaluated{key}")


def _zero(value: Any, _: Node) -> bool:  # noqa: ANN401 - JSON
    return not isinstance(value, bool) and value == 0


def _any(value: object, _: Node) -> bool:
    return every(value)


def _of_nothing(value: Mapping[str, object], _: Node) -> bool:
    return all(each == [] or every(each) for each in value.values())


def _any_name(value: object, _: Node) -> bool:
    if not isinstance(value, dict) or every(value):
        return every(value)
    kinds = value.get("type", "string")
    return "string" in kinds and not (OF_ANY - {"type"} | OF_TEXT).intersection(value)


def _one_at_most(value: object, node: Node) -> bool:
    return value is False or node.get("maxItems", 2) <= 1


EMPTY: Mapping[str, Callable[[Any, Node], bool]] = {
    "minLength": _zero,
    "minItems": _zero,
    "minProperties": _zero,
    "pattern": lambda value, _: value == "",
    "format": lambda value, _: value not in FORMATS,
    "required": lambda value, _: value == [],
    "uniqueItems": _one_at_most,
    "propertyNames": _any_name,
    "additionalItems": lambda _, node: not isinstance(node.get("items"), list),
    "allOf": lambda value, _: value == [],
    "not": lambda value, _: never(value),
    "if": lambda _, node: every(node.get("then", True)) and every(node.get("else", True)),
    "then": lambda _, node: "if" not in node,
    "else": lambda _, node: "if" not in node,
    "contains": lambda _, node: node.get("minContains", 1) == 0 and "maxContains" not in node,
    "minContains": lambda _, node: "contains" not in node,
    "maxContains": lambda _, node: "contains" not in node,
    "dependencies": _of_nothing,
    "dependentRequired": _of_nothing,
    "dependentSchemas": _of_nothing,
    "unevaluatedItems": lambda value, node: (
        every(value) or isinstance(node.get("items"), dict | bool)
    ),
    "unevaluatedProperties": lambda value, node: every(value) or "additionalProperties" in node,
}
"""When a keyword rules nothing out, by its value and those beside it; in this order."""


# --- choices ------------------------------------------------------------------------------


def _choose(node: Node) -> None:
    """Of listed values leave those of the type, which then says nothing more."""
    if "const" not in node and "enum" not in node:
        return
    kinds = node.get("type", list(TYPES))
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if "const" in node:
        if _is_of(node["const"], kinds):
            node.pop("type", None)
    else:
        left = [value for value in node["enum"] if _is_of(value, kinds)]
        if left:
            node.pop("type", None)
            node["enum"] = left


def _is_of(value: object, kinds: list[str]) -> bool:
    match value:
        case None:
            return "null" in kinds
        case bool():
            return "boolean" in kinds
        case int() | Decimal():
            whole = isinstance(value, int) or value == value.to_integral_value()
            return "number" in kinds or ("integer" in kinds and whole)
        case str():
            return "string" in kinds
        case list():
            return "array" in kinds
    return "object" in kinds


def _together(node: Node) -> None:
    """Put what llguidance must read together side by side, where the first of it stands."""
    keys = list(node)
    plain = [key for key in keys if key not in APPLICATORS]
    first = min((keys.index(key) for key in plain if key in RULES), default=0)
    before = [key for key in keys[:first] if key in APPLICATORS]
    after = [key for key in keys[first:] if key in APPLICATORS]
    for key in [*before, *plain, *after]:
        node[key] = node.pop(key)
