from __future__ import annotations

from typing import Any

import pytest

from mlxfill_fill_strict.schema import conforms

LEGAL: list[tuple[Any, Any]] = [
    ("a", {"type": "string"}),
    (5, {"type": "integer"}),
    (5.0, {"type": "integer"}),
    (5.5, {"type": "number"}),
    (True, {"type": "boolean"}),
    (None, {"type": "null"}),
    (None, {"type": ["string", "null"]}),
    ("b", {"enum": ["a", "b"]}),
    (1, {"const": 1}),
    ([1, 2], {"type": "array", "items": {"type": "integer"}}),
    ([1, "a"], {"type": "array"}),
    ({}, {}),
    ({"x": 1}, True),
    ({"a": "x"}, {"properties": {"a": {"type": "string"}}, "required": ["a"]}),
    ({"b": 1}, {"properties": {"a": {}}, "additionalProperties": {"type": "integer"}}),
    ({"x-b": 1}, {"patternProperties": {"^x-": {}}, "additionalProperties": False}),
    (5, {"anyOf": [{"type": "string"}, {"type": "integer"}]}),
    (5, {"allOf": [{"type": "number"}, {"type": "integer"}]}),
    ({"a": {"b": []}}, {"properties": {"a": {"properties": {"b": {"type": "array"}}}}}),
    ({"a": 5}, {"properties": {"a": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"type": "integer"}}}),
    ("x", {"type": "string", "maxLength": 0, "format": "date", "description": "d"}),
]
ILLEGAL: list[tuple[Any, Any]] = [
    (5, {"type": "string"}),
    (5.5, {"type": "integer"}),
    (float("inf"), {"type": "integer"}),
    (True, {"type": "integer"}),
    (True, {"const": 1}),
    (0, {"type": "boolean"}),
    ("5", {"type": "number"}),
    ("c", {"enum": ["a", "b"]}),
    ([1, "a"], {"items": {"type": "integer"}}),
    ({}, {"required": ["a"]}),
    ({"a": 5}, {"properties": {"a": {"type": "string"}}}),
    ({"b": 1}, {"properties": {"a": {}}, "additionalProperties": False}),
    ({"b": "x"}, {"additionalProperties": {"type": "integer"}}),
    ([], {"anyOf": [{"type": "string"}, {"type": "integer"}]}),
    (5.5, {"allOf": [{"type": "number"}, {"type": "integer"}]}),
    ({"a": "x"}, {"properties": {"a": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"type": "integer"}}}),
    (1, {"$ref": "#/nowhere"}),
    (1, {"$ref": "https://example.org/schema"}),
    (1, {"$ref": "#"}),
    (1, {"type": "fish"}),
    (1, False),
    (1, "string"),
]


@pytest.mark.parametrize(("value", "schema"), LEGAL, ids=repr)
def test_a_legal_value_conforms(value: Any, schema: Any) -> None:
    assert conforms(value, schema)


@pytest.mark.parametrize(("value", "schema"), ILLEGAL, ids=repr)
def test_an_illegal_value_does_not(value: Any, schema: Any) -> None:
    assert not conforms(value, schema)
