"""What llguidance gets wrong by itself: numbers, patterns of names, keywords without a say."""

from __future__ import annotations

import json
import random
from decimal import Decimal
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlxfill import InputError, Schema
from mlxfill_constrain import Vocabulary
from mlxfill_constrain.walk import Walk

NAMES = ["a", "b", "score", "tags", "é", "x1"]
PATTERNS = [
    "^score$",
    "^[ab]$",
    "^x",
    "a",
    "^(a|b)",
    "^.*$",
    "^",
    "^a|b$",
    r"\w",
    "^(a|b|x1)$",
    "^a{1,2}$",
]
MOST = 150


@pytest.fixture(scope="session")
def vocabulary(tokenizer: Any) -> Vocabulary:
    return Vocabulary.of(tokenizer, frozenset(tokenizer.eos_token_ids))


@pytest.fixture(scope="session")
def closing(tokenizer: Any) -> frozenset[int]:
    """Ids that end something: taken often, so that random replies come to an end."""
    ids = range(len(tokenizer.get_vocab()))
    return frozenset(i for i in ids if set(tokenizer.decode([i])) & set('"]}'))


def written(
    vocabulary: Vocabulary, tokenizer: Any, closing: frozenset[int], schema: Schema, seed: int
) -> str | None:
    """A random reply, or None where it is longer than ``MOST`` tokens."""
    walk = Walk(vocabulary.matcher(schema, "spaced"), vocabulary.spelled)
    ids: list[int] = []
    rng = random.Random(seed)
    while not walk.finished and not (walk.accepting and rng.random() < 0.5):
        left = [walk.forced[0]] if walk.forced else [int(i) for i in walk.allowed().nonzero()[0]]
        left = [token for token in left if token not in vocabulary.eos]
        assert left or walk.accepting, f"a dead end after {tokenizer.decode(ids)!r}"
        if not left:
            break
        ends = [token for token in left if token in closing]
        ids.append(rng.choice(ends if ends and rng.random() < 0.6 else left))
        walk.take(ids[-1])
        if len(ids) > MOST:
            return None
    return str(tokenizer.decode(ids))


def exactly(text: str) -> Any:
    return json.loads(text, parse_float=Decimal)


# --- random schemas -------------------------------------------------------------------------

NUMBERS = st.sampled_from([0, 1, 2, 3, -1, -7, 0.5, 1.5, 0.1, 10, -0.25, 100, 7.25])
VALUES = st.sampled_from(
    [
        0,
        -3,
        2.5,
        1.1,
        "ab",
        "",
        "\n",
        "\u0001",
        "\x7f",
        None,
        True,
        [1, "a"],
        {"a": 1},
        2**53 + 1,
        1e300,
    ]
)


def some(**words: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Each of the words, or not."""
    return st.fixed_dictionaries({}, optional=words)


def with_type(kind: str, words: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[Any]:
    return words.map(lambda some: {"type": kind, **some})


def short() -> st.SearchStrategy[Any]:
    count = st.integers(0, 4)
    numbers = some(
        minimum=NUMBERS,
        maximum=NUMBERS,
        exclusiveMinimum=NUMBERS,
        exclusiveMaximum=NUMBERS,
        multipleOf=st.sampled_from([1, 2, 3, 0.5, 0.1, 0.01, 2.5, 0.4]),
    )
    texts = some(
        minLength=count,
        maxLength=st.integers(2, 8),
        pattern=st.sampled_from(PATTERNS),
        format=st.sampled_from(["date", "uuid", "time", "password", "binary", "any"]),
    )
    return st.one_of(
        st.sampled_from([True, {}, False]),
        with_type("integer", numbers),
        with_type("number", numbers),
        with_type("string", texts),
        some(
            enum=st.lists(VALUES, min_size=1, max_size=3),
            type=st.sampled_from(["integer", "string"]),
        ),
        VALUES.map(lambda value: {"const": value}),
    )


def nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    count, yes = st.integers(0, 3), st.booleans()
    objects = some(
        type=st.just("object"),
        properties=st.dictionaries(st.sampled_from(NAMES), inner, max_size=3),
        required=st.lists(st.sampled_from(NAMES), unique=True, max_size=2),
        additionalProperties=st.one_of(st.sampled_from([False]), inner),
        patternProperties=st.dictionaries(st.sampled_from(PATTERNS), inner, max_size=2),
        minProperties=count,
        maxProperties=count,
        propertyNames=st.sampled_from([{"type": "string"}, {"minLength": 0}, {"pattern": "^a"}]),
        dependentRequired=st.sampled_from([{}, {"a": []}, {"a": ["b"]}]),
        dependentSchemas=st.sampled_from([{}, {"a": True}, {"a": {"required": ["b"]}}]),
        unevaluatedProperties=yes,
    )
    arrays = some(
        items=inner,
        prefixItems=st.lists(inner, min_size=1, max_size=2),
        minItems=count,
        maxItems=count,
        uniqueItems=yes,
        contains=inner,
        minContains=st.integers(0, 1),
        unevaluatedItems=yes,
    )
    listed = st.lists(inner, min_size=1, max_size=2)
    both = st.one_of(
        some(allOf=listed, **{"not": st.sampled_from([False, {"type": "null"}])}),
        some(anyOf=listed, **{"if": inner, "then": st.sampled_from([True, {"type": "object"}])}),
        some(oneOf=listed, title=st.just("t"), default=VALUES),
        some(**{"$ref": st.sampled_from(["#", "#/$defs/one"])}),
    )
    return st.one_of(
        objects,
        with_type("array", arrays),
        both,
        st.tuples(objects, both).map(lambda two: {**two[1], **two[0]}),
        st.tuples(both, objects).map(lambda two: {**two[1], **two[0]}),
    )


SCHEMAS = st.recursive(short(), nested, max_leaves=6)


@settings(settings.get_profile("constrain"), max_examples=60)
@given(schema=nested(SCHEMAS), one=SCHEMAS)
def test_a_reply_is_legal_or_its_schema_is_refused_at_once(
    vocabulary: Vocabulary, tokenizer: Any, closing: frozenset[int], schema: Any, one: Any
) -> None:
    text = json.dumps({**schema, "$defs": {"one": one}})
    try:
        vocabulary.matcher(Schema("json", text), "spaced")
    except InputError:
        return
    for seed in range(4):
        reply = written(vocabulary, tokenizer, closing, Schema("json", text), seed)
        if reply is not None:
            jsonschema.Draft202012Validator(exactly(text)).validate(exactly(reply))


# --- names --------------------------------------------------------------------------------------

NUMBER = {"type": "integer", "minimum": 0, "maximum": 9}
LIST = {"type": "array", "items": NUMBER, "maxItems": 1}
PATTERNED: dict[str, dict[str, Any]] = {
    "named as well": {
        "properties": {"score": NUMBER, "tags": LIST},
        "patternProperties": {"^score$": {"type": "integer"}},
    },
    "only required": {"patternProperties": {"^score$": NUMBER, "^tags$": LIST}},
    "partly named": {"properties": {"tags": LIST}, "patternProperties": {"^(score|tags)$": {}}},
    "apart from each other": {
        "patternProperties": {"^sc": NUMBER, "^ta": LIST},
        "anyOf": [{"required": ["score"]}, {"required": ["tags"]}],
    },
}


@pytest.mark.parametrize("case", PATTERNED)
def test_patterns_of_names_lead_into_no_dead_end(held: Any, case: str) -> None:
    schema = {
        "type": "object",
        **PATTERNED[case],
        "required": ["score", "tags"],
        "additionalProperties": False,
    }
    for seed in range(12):
        result = held.write(schema=schema, temperature=1.2, seed=seed)
        if result.finish_reason == "stop":
            jsonschema.validate(json.loads(result.text), schema)


def test_a_name_cannot_be_written_another_way(vocabulary: Vocabulary, tokenizer: Any) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    walk = Walk(
        vocabulary.matcher(Schema("json", json.dumps(schema)), "spaced"), vocabulary.spelled
    )
    ids = tokenizer.encode('{"\\u0061": "x"}', add_special_tokens=False)
    with pytest.raises(InputError, match=r"satisfy the grammar|does not allow token"):
        list(map(walk.take, ids))


# --- numbers -----------------------------------------------------------------------------------

WRITTEN = ["1.10", "1e2", "-0", "9007199254740992", "1152921504606846976", "100000000000000000000"]
ROUNDED = [
    "9007199254740993",
    "1234567890123456789",
    "18446744073709551616",
    "0.1000000000000000055511151231257827",
    "1e400",
    "1e9999999",
    "9" * 400,
]
PLACES = [
    '{"const": %s}',
    '{"enum": ["a", %s]}',
    '{"const": {"a": [%s]}}',
    '{"items": {"const": %s}}',
]


@pytest.mark.parametrize("number", WRITTEN)
def test_a_number_is_written_exactly(
    vocabulary: Vocabulary, tokenizer: Any, closing: frozenset[int], number: str
) -> None:
    schema = Schema("json", f'{{"enum": [{number}]}}')
    text = written(vocabulary, tokenizer, closing, schema, 0)
    assert text is not None
    assert Decimal(text) == Decimal(number)


@pytest.mark.parametrize("number", ROUNDED)
@pytest.mark.parametrize(
    "place", [*PLACES, '{"minimum": %s}', '{"exclusiveMaximum": %s}', '{"items": {"maximum": %s}}']
)
def test_a_number_that_would_be_rounded_is_refused(
    vocabulary: Vocabulary, place: str, number: str
) -> None:
    for schema in (
        Schema("json", place % number),
        Schema("lark", f"start: %json {place % number}"),
    ):
        with pytest.raises(InputError, match=r"rounded to 64 bits|is above 92"):
            vocabulary.matcher(schema, "spaced")


@pytest.mark.parametrize("count", ["1.00000000000000000001", "1e400", "1e30"])
@pytest.mark.parametrize("key", ["maxLength", "minItems", "maxProperties"])
def test_a_count_that_would_be_rounded_is_refused(
    vocabulary: Vocabulary, key: str, count: str
) -> None:
    with pytest.raises(InputError, match=rf"{key} .* is no whole number of 64 bits"):
        vocabulary.matcher(Schema("json", f'{{"{key}": {count}}}'), "spaced")


@pytest.mark.parametrize(
    "place", [*PLACES, '{"minimum": %s}', '{"default": %s}', '{"maxItems": %s}']
)
def test_an_exponent_beyond_all_bounds_is_refused(vocabulary: Vocabulary, place: str) -> None:
    for number in ("1e99999999999999999999", "1e-99999999999999999999"):
        schema = Schema("json", place % number)
        with pytest.raises(InputError, match=r"the exponent of 1e-?9+ is beyond all bounds"):
            vocabulary.matcher(schema, "spaced")


def test_the_largest_integer_of_64_bits_may_be_a_bound(vocabulary: Vocabulary) -> None:
    vocabulary.matcher(Schema("json", f'{{"type": "integer", "maximum": {2**63 - 1}}}'), "spaced")


def test_numbers_that_only_describe_may_be_any(vocabulary: Vocabulary) -> None:
    vocabulary.matcher(Schema("json", '{"default": 9007199254740993, "type": "integer"}'), "spaced")


# --- keywords that say nothing -------------------------------------------------------------------

EMPTY: list[dict[str, Any]] = [
    {"propertyNames": {"type": "string"}},
    {"propertyNames": {"type": ["string", "null"], "minLength": 0}},
    {"minLength": 0, "pattern": "", "minItems": 0, "minProperties": 0, "required": []},
    {"not": False},
    {"not": {"allOf": [False]}},
    {"allOf": []},
    {"allOf": [True, {"title": "x"}]},
    {"uniqueItems": False},
    {"uniqueItems": True, "maxItems": 1},
    {"dependentRequired": {}},
    {"dependentRequired": {"a": []}},
    {"dependentSchemas": {"a": {"description": "x"}}},
    {"dependencies": {"a": [], "b": {}}},
    {"unevaluatedProperties": True, "unevaluatedItems": {}},
    {"if": {"required": ["a"]}},
    {"if": {"required": ["a"]}, "then": {}, "else": True},
    {"then": {"type": "null"}},
    {"minContains": 2, "maxContains": 3},
    {"contains": {"type": "null"}, "minContains": 0},
    {"title": "t", "description": "d", "default": 1, "examples": [1], "$comment": "c"},
    {"deprecated": True, "readOnly": True, "writeOnly": False},
    {"contentMediaType": "text/plain", "contentEncoding": "base64", "contentSchema": {"not": {}}},
    {"$schema": "http://json-schema.org/schema#"},
    *(
        {"format": name}
        for name in ("password", "binary", "path", "base64", "url", "snowflake", "any")
    ),
]


@pytest.mark.parametrize("words", EMPTY, ids=str)
@pytest.mark.parametrize("outer", ["{}", '{"properties": {"a": %s}}', "lark"])
def test_keywords_that_every_value_satisfies_are_dropped(
    vocabulary: Vocabulary, words: dict[str, Any], outer: str
) -> None:
    text = json.dumps(words)
    schema = Schema("json", outer % text if "%" in outer else text)
    if outer == "lark":
        schema = Schema("lark", f'start: "x" %json {text}')
    vocabulary.matcher(schema, "spaced")


@pytest.mark.parametrize("keyword", ["unevaluatedProperties", "additionalProperties"])
def test_unevaluated_is_additional_where_nothing_else_evaluates(
    vocabulary: Vocabulary, tokenizer: Any, closing: frozenset[int], keyword: str
) -> None:
    schema = {"type": "object", "properties": {"a": {"const": 1}}, keyword: False}
    text = written(vocabulary, tokenizer, closing, Schema("json", json.dumps(schema)), 0)
    assert text in {"{}", '{"a": 1}'}


@pytest.mark.parametrize("name", ["date", "uuid", "ipv4"])
def test_known_formats_are_enforced(
    vocabulary: Vocabulary, tokenizer: Any, closing: frozenset[int], name: str
) -> None:
    schema = Schema("json", json.dumps({"type": "string", "format": name}))
    text = written(vocabulary, tokenizer, closing, schema, 1)
    assert text is not None
    assert len(json.loads(text)) >= 7


@pytest.mark.parametrize(
    ("schema", "legal"),
    [
        ({"exclusiveMinimum": True, "anyOf": [{}], "minimum": 3, "maximum": 4}, {"4"}),
        ({"$ref": "#/definitions/a", "type": "null", "definitions": {"a": {"enum": [7]}}}, {"7"}),
    ],
)
def test_older_drafts_are_read_as_they_were_meant(
    vocabulary: Vocabulary, tokenizer: Any, closing: frozenset[int], schema: Any, legal: set[str]
) -> None:
    draft = {"$schema": "http://json-schema.org/draft-04/schema#", "type": "integer", **schema}
    text = written(vocabulary, tokenizer, closing, Schema("json", json.dumps(draft)), 0)
    assert text in legal
