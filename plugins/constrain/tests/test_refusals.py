"""Schemas that cannot be used: one line with the reason, never a hang."""

from __future__ import annotations

import json
from functools import reduce
from typing import Any

import pytest
from attrs import evolve

from mlxfill import ConfigError, InputError, Schema, load_config
from mlxfill_constrain import ConstrainSettings, plugin


def nested(depth: int) -> dict[str, Any]:
    """Objects in objects."""
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
    return schema


def ref(name: str) -> dict[str, str]:
    """A reference to a definition."""
    return {"$ref": f"#/$defs/{name}"}


def keyed(letter: str, number: int) -> dict[str, Any]:
    """A text under a name of its own."""
    return {"properties": {f"{letter}{number}": {"type": "string"}}}


DRAFT_4 = "http://json-schema.org/draft-04/schema#"

REFUSED: dict[str, tuple[Any, str]] = {
    "unknown keyword": ({"not": {"type": "string"}}, 'Unimplemented keys: ."not"'),
    "unknown type": (
        {"anyOf": [{"properties": {"a\nb": {"type": "strin"}}}]},
        r"is no JSON schema: anyOf.0.properties.a\\nb.type: must be array, .* not \"strin\"",
    ),
    "properties in a list": (
        {"type": "object", "properties": []},
        r'is no JSON schema: properties: \[\] is not of type "object"',
    ),
    "one that is required": ({"required": "a" * 9999}, 'required: "aaa.* is not of type "array"'),
    "a wrong bound, deep inside": (
        {"$defs": {"a" * 9999: {"minLength": -1}}, "type": "string"},
        r"schema: \.\.\.aaa.*minLength: -1 is less than the minimum",
    ),
    "no schema of its draft": (
        {"$schema": DRAFT_4, "items": [{"type": 3}]},
        "items.0.type: must be array, .* not 3",
    ),
    "no schema, of an unknown draft": (
        {"$schema": "http://127.0.0.1:9/nothing", "items": [{"type": "string"}]},
        "items: .* is not of types",
    ),
    "no schema, too deep inside": (
        {"$schema": DRAFT_4, **reduce(lambda s, _: {"items": [s]}, range(140), {"type": "in"})},
        "cannot be used: Recursion limit",
    ),
    "half a character": ({"properties": {"\ud800": {"type": "string"}}}, "'utf-8' codec"),
    "no schema in a grammar": (
        {"lark": 'start: "a" | %json {"type": "object", "properties": {"a": {"type": "in"}}}'},
        "properties.a.type: must be",
    ),
    "nothing satisfies it": (
        {"type": "object", "properties": {"a": False}, "required": ["a"]},
        "property 'a'",
    ),
    "incompatible": ({"allOf": [{"type": "string"}, {"type": "number"}]}, "incompatible types"),
    "itself": ({"$ref": "#"}, "no text satisfies it"),
    "a circle": ({"$defs": {"a": ref("b"), "b": ref("a")}, **ref("a")}, "no text satisfies it"),
    "a circle with more": (
        {"$defs": {"a": {"allOf": [ref("a"), {"type": "string"}]}}, **ref("a")},
        "circular references",
    ),
    "elsewhere": ({"$ref": "https://example.org/x.json"}, "is not present in a registry"),
    "a file": ({"$ref": "file:///etc/hostname"}, "is not present in a registry"),
    "too deep": (nested(400), "nested more than about 60 objects deep: flatten it"),
    "too many combinations": (
        {"allOf": [{"anyOf": [keyed("a", i), keyed("b", i)]} for i in range(25)]},
        "schema too large",
    ),
    "look-ahead": ({"type": "string", "pattern": "^(?=a)b$"}, "look-around"),
    "open group": ({"regex": "(a"}, "unclosed group"),
    "a regex in too many groups": ({"regex": "(" * 5000 + "a" + ")" * 5000}, "invalid regex"),
    "unknown rule": ({"lark": "start: nothing"}, 'unknown name: "nothing"'),
    "JSON in the place of a grammar": (
        {"lark": "\n{bad"},
        "schema cannot be used: a grammar is text in Lark's notation with a rule start, not JSON",
    ),
    "llguidance's own JSON": ({"lark": '{"grammars": [{"json_schema": {}}]}'}, "not JSON$"),
    "a rule without end": ({"lark": "start: start"}, "no text satisfies it"),
    "a grammar in too many groups": (
        {"lark": "start: " + "(" * 3000 + '"a"' + ")" * 3000},
        "too deeply nested",
    ),
    "a constant at the end of 64 bits": ({"const": -(2**63)}, f"-{2**63} is below -92"),
    "a value at the end of 64 bits": ({"enum": [[1, -(2**63) + 9]]}, "is below -92"),
    "a range at the end of 64 bits": (
        {"type": "integer", "minimum": -(2**63), "maximum": -(2**63) + 1},
        "is below -92",
    ),
    "the end of 64 bits in a grammar": (
        {"lark": f'start: %json {{"const": {-(2**63)}}}'},
        "is below",
    ),
    "a value beyond 64 bits beside integers": (
        {"allOf": [{"type": "integer"}, {"const": -1e300}]},
        "beside the type integer",
    ),
    "a bound beyond 64 bits": ({"type": "integer", "minimum": -1e19}, "-1E.19 is below -92"),
    "a multiple with a rounded point": ({"multipleOf": 0.07}, "multipleOf 0.07 has too many"),
    "a large multiple": ({"type": "integer", "multipleOf": 2**31}, "multipleOf of 2147483648"),
    "a multiple of many digits": ({"type": "number", "multipleOf": 0.99991}, "multipleOf of 99991"),
    "multiples together": (
        {"type": "integer", "allOf": [{"multipleOf": 997}, {"multipleOf": 991}]},
        "multipleOf of 988027",
    ),
    "a large multiple in a grammar": (
        {"lark": 'start: %json {"type": "integer", "multipleOf" : 99991}'},
        "multipleOf of 99991",
    ),
    "an endless list": (
        {"$defs": {"n": {"type": "array", "items": ref("n"), "minItems": 1}}, **ref("n")},
        "no text satisfies it",
    ),
    "names that nobody counts": ({"type": "object", "minProperties": 2}, "minProperties 2 counts"),
    "patterns that leave no name": (
        {
            "type": "object",
            "properties": {"a": {"type": "integer"}},
            "allOf": [{"type": "object", "patternProperties": {"^a$": {"minimum": 0}}}],
        },
        "patternProperties and other names",
    ),
    "many patterns": (
        {"patternProperties": {f"^p{n}$": {"type": "null"} for n in range(300)}},
        "more than 50 patternProperties",
    ),
    "a repetition of repetitions": ({"regex": "(a{1000}){1000}"}, "too many expressions"),
    "a pattern of repetitions": ({"pattern": "^(a{1000}){1000}$", "type": "string"}, "too many"),
    "a long expression": ({"regex": "a" * 199_000}, "too many expressions"),
    "ten thousand levels": (10_000 * ("items",), "too deeply|60 objects deep"),
    "too long": ({"enum": ["a" * 200_001]}, "200015 characters, more than the 200000"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_schema_is_refused_with_the_reason(held: Any, case: str) -> None:
    schema, reason = REFUSED[case]
    if isinstance(schema, tuple):
        schema = Schema("json", f'{{"{schema[0]}": ' * len(schema) + "true" + "}" * len(schema))
    with held.engine() as engine, pytest.raises(InputError, match=reason) as raised:
        engine.stream(held.prompt_ids, schema=schema)
    message = str(raised.value)
    assert message.startswith("schema ")
    assert "\n" not in message
    assert len(message) < 500


HARD: dict[str, Any] = {
    "backtracking": {"type": "string", "pattern": "^(a+)+$", "maxLength": 5},
    "nested repetition": {"type": "string", "pattern": "^((a{1,9}){1,9}){1,9}$", "maxLength": 5},
    "many states": {"regex": "[ab]*a[ab]{12}"},
    "many values": {"enum": [f"v{i}" for i in range(9000)]},
    "many properties": {
        "type": "object",
        "properties": {f"p{i}": {"type": "boolean"} for i in range(300)},
        "additionalProperties": False,
    },
    "multiples": {"type": "number", "allOf": [{"multipleOf": 0.25}, {"multipleOf": 1e6}]},
    "a small multiple": {"anyOf": [{"const": "a"}, {"type": "number", "multipleOf": 0.01}]},
    "large numbers": {"enum": [-(2**62), 10**20, -1e300, 0]},
    "large bounds": {"type": "array", "items": {"const": 1}, "maxItems": 10**9},
    "a recursive type": {
        "$defs": {"n": {"type": "array", "items": ref("n"), "maxItems": 1}},
        **ref("n"),
    },
    "references of references": {
        "$defs": {
            **{f"d{n}": {"type": "array", "items": ref(f"d{n + 1}")} for n in range(2000)},
            "d2000": {"type": "null"},
        },
        **ref("d0"),
    },
    "rules in rules": {
        "lark": "start: r0\n"
        + "".join(f'r{n}: "a" r{n + 1} | "b"\n' for n in range(6000))
        + 'r6000: "x"'
    },
    "ambiguous": {"lark": 'start: start start | "a" | "b"'},
}


@pytest.mark.parametrize("case", HARD)
def test_a_hard_schema_is_answered(held: Any, case: str) -> None:
    on, off = (held.write(schema=HARD[case], max_tokens=40, forced=f) for f in (True, False))
    assert on.tokens == off.tokens
    assert len(on.tokens) == 40 or on.finish_reason == "stop"


def test_a_tokenizer_that_cannot_be_read(held: Any) -> None:
    with held.engine() as engine:
        request = engine.stream(held.prompt_ids, schema={"const": 1}).request
    cases = ((Plain(), "fast tokenizer"), (Plain(Broken()), "cannot be used with"))
    for tokenizer, reason in cases:
        with pytest.raises(InputError, match=reason):
            plugin.mlxfill_constraint(evolve(request, tokenizer=tokenizer), ConstrainSettings())


class Broken:
    """A tokenizer of the library's kind, with an algorithm that nobody knows."""

    def no_padding(self) -> None: ...

    def no_truncation(self) -> None: ...

    def to_str(self) -> str:
        return json.dumps({"version": "1.0", "model": {"type": "Rhyme"}})


class Plain:
    """A tokenizer without, or with, a fast one inside."""

    has_thinking = False

    def __init__(self, backend: object = None) -> None:
        self.backend_tokenizer = backend


@pytest.mark.parametrize(
    ("key", "value", "legal"),
    [
        ("forced", 1, "true or false"),
        ("whitespace", "none", "'spaced', 'compact' or 'flexible'"),
        ("max_size", 0, "at least 1"),
    ],
)
def test_settings_are_checked(key: str, value: object, legal: str) -> None:
    config = load_config({"plugins": {"constrain": {key: value}}})
    with pytest.raises(ConfigError, match=f"plugins.constrain.{key} must be .*{legal}"):
        config.plugin_settings("constrain", ConstrainSettings)
