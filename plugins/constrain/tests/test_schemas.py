"""Replies satisfy their schema, and are the same however their tokens came about."""

from __future__ import annotations

import json
from typing import Any

import attrs
import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlxfill_testing import Guest

NAMES = st.sampled_from(["id", "name", "unit_price", "é", "a b", "n1", "is_open", 'q"q'])
KINDS = ["llama", "qwen3_5", "gemma3_text"]
"""Caches that can be trimmed; recurrent ones among others; rings that wrap."""


TICKET: dict[str, Any] = {
    "type": "object",
    "properties": {
        "category": {"enum": ["billing", "shipping", "other"]},
        "needs_review": {"type": "boolean"},
        "minutes_estimated": {"type": "integer", "minimum": 0, "maximum": 99},
        "summary": {"type": "string", "maxLength": 12},
    },
    "required": ["category", "needs_review", "minutes_estimated", "summary"],
    "additionalProperties": False,
}


def written(result: Any) -> tuple[list[int], str, str]:
    """What must not depend on how tokens came about."""
    return result.tokens, result.text, result.finish_reason


def _text() -> st.SearchStrategy[dict[str, Any]]:
    patterns = st.sampled_from(["^[a-z]{2,5}$", "^[0-9]+-[A-Z]$", "^(ab|cd)?e$"])
    return st.one_of(
        st.integers(0, 6).map(lambda n: {"type": "string", "maxLength": n}),
        patterns.map(lambda p: {"type": "string", "pattern": p, "maxLength": 8}),
        st.just({"type": "string", "format": "date"}),
    )


def _number() -> st.SearchStrategy[dict[str, Any]]:
    bounds = st.tuples(st.integers(-99, 99), st.integers(0, 50))
    return st.one_of(
        bounds.map(lambda b: {"type": "integer", "minimum": b[0], "maximum": b[0] + b[1]}),
        bounds.map(lambda b: {"type": "number", "minimum": b[0], "maximum": b[0] + b[1] + 1}),
    )


def _choice() -> st.SearchStrategy[dict[str, Any]]:
    values = st.one_of(
        NAMES, st.integers(0, 99), st.none(), st.booleans(), st.just([1, "x"]), st.just({"k": 0})
    )
    return st.one_of(
        st.lists(values, min_size=1, max_size=4).map(lambda v: {"enum": v}),
        values.map(lambda v: {"const": v}),
        st.just({"type": "boolean"}),
        st.just({"type": ["null", "boolean"]}),
    )


def _object(inner: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    @st.composite
    def made(draw: st.DrawFn) -> dict[str, Any]:
        properties = draw(st.dictionaries(NAMES, inner, max_size=3))
        required = [name for name in properties if draw(st.booleans())]
        return {
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": False,
        }

    return made()


def _list(inner: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    sizes = st.tuples(st.integers(0, 2), st.integers(0, 1))
    return st.tuples(inner, sizes).map(
        lambda p: {
            "type": "array",
            "items": p[0],
            "minItems": p[1][0],
            "maxItems": p[1][0] + p[1][1],
        }
    )


def _referring(schema: dict[str, Any]) -> dict[str, Any]:
    pair = {"type": "array", "prefixItems": [{"$ref": "#/$defs/it"}], "items": False, "minItems": 1}
    return {"$defs": {"it": schema}, **pair}


def schemas() -> st.SearchStrategy[dict[str, Any]]:
    """JSON schemas whose replies are short."""
    leaves = st.one_of(_text(), _number(), _choice())
    nested = st.recursive(
        leaves,
        lambda inner: st.one_of(
            _object(inner),
            _list(inner),
            st.lists(inner, min_size=1, max_size=3).map(lambda s: {"anyOf": s}),
        ),
        max_leaves=5,
    )
    return st.one_of(_object(nested), nested, _object(leaves).map(_referring))


@settings(settings.get_profile("constrain"))
@given(
    schema=schemas(),
    name=st.sampled_from(KINDS),
    temperature=st.sampled_from([0.0, 0.8]),
    seed=st.integers(0, 1000),
    accuracy=st.sampled_from([0.0, 0.7, 1.0]),
)
def test_random_schemas(  # noqa: PLR0913, PLR0917 - what is drawn
    held: Any, schema: dict[str, Any], name: str, temperature: float, seed: int, accuracy: float
) -> None:
    options = {"schema": schema, "name": name, "temperature": temperature, "seed": seed}
    expected = held.write(forced=False, **options)
    # Only the decimals of a number may go on without end.
    assert expected.finish_reason == "stop" or '"number"' in json.dumps(schema)
    if expected.finish_reason == "stop":
        jsonschema.validate(json.loads(expected.text), schema)
    assert written(held.write(**options)) == written(expected)
    truth = [*held.prompt_ids, *expected.tokens]
    guests = [
        Guest.offering(truth, accuracy, chance=0.5, seed=seed, longest=5),
        attrs.evolve(Guest.drafting(truth, accuracy, seed=seed), name="drafter"),
    ]
    assert written(held.write(*guests, last=True, **options)) == written(expected)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_forced_tokens_save_forwards(held: Any, name: str, temperature: float) -> None:
    options = {"schema": TICKET, "name": name, "temperature": temperature}
    off, on = held.write(forced=False, **options), held.write(**options)
    assert written(on) == written(off)
    assert list(json.loads(on.text)) == list(TICKET["properties"])
    forced = on.origins.count("grammar")
    assert forced > len(on.tokens) / 3
    assert on.stats.target_forwards <= off.stats.target_forwards - forced + on.stats.fill["events"]
