"""Regular expressions, Lark grammars, forms of whitespace, tokenizers of real models."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from mlx_lm.tokenizer_utils import load

from mlxfill import Schema
from mlxfill_constrain import Vocabulary
from mlxfill_constrain.walk import Walk

BOTH = pytest.mark.parametrize("forced", [True, False])
REAL = Path(__file__).parents[3] / ".cache" / "tokenizers"
"""Where the tests of fill-strict leave tokenizers of real models."""

PATTERNS = [
    "[0-9]{4}-[0-9]{2}-[0-9]{2}",
    "(GET|POST) /[a-z]{1,8}(/[a-z]{1,8})? HTTP/1\\.1",
    "user_[a-z]{1,9}@example\\.org",
    "[א-ת]{2,4}: (yes|no)",
]
ARITHMETIC = """
start: sum " = "  NUMBER
sum: product (" + " product)?
product: NUMBER | "(" sum ")"
NUMBER: /[0-9]{1,3}/
"""


@BOTH
@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_reply_matches(held: Any, pattern: str, temperature: float, forced: bool) -> None:
    options = {"schema": {"regex": pattern}, "temperature": temperature}
    result = held.write(forced=forced, **options)
    assert result.finish_reason == "stop"
    assert re.fullmatch(pattern, result.text)
    assert result.tokens == held.write(forced=False, **options).tokens


@BOTH
def test_a_grammar_describes_the_reply(held: Any, forced: bool) -> None:
    result = held.write(schema={"lark": ARITHMETIC}, forced=forced, temperature=0.8)
    assert re.fullmatch(r"[0-9+() ]+ = [0-9]{1,3}", result.text)
    assert result.text.count("(") == result.text.count(")")


def test_forced_text_of_a_grammar_is_appended(held: Any) -> None:
    lark = 'start: ("yes" | "no") ", because it was asked for by name."'
    on, off = (held.write(schema={"lark": lark}, forced=f) for f in (True, False))
    assert on.tokens == off.tokens
    assert on.stats.target_forwards < off.stats.target_forwards / 2


@BOTH
def test_any_object(held: Any, forced: bool) -> None:
    result = held.write(schema={"type": "json_object"}, forced=forced, max_tokens=60)
    assert result.text.startswith("{")
    assert result.tokens == held.write(schema={"type": "object"}, max_tokens=60).tokens


@pytest.mark.parametrize(
    ("whitespace", "text"),
    [("spaced", '{"a": [1, 1], "b": 2}'), ("compact", '{"a":[1,1],"b":2}')],
)
def test_whitespace_is_fixed(held: Any, whitespace: str, text: str) -> None:
    result = held.write(schema=FIXED, whitespace=whitespace)
    assert result.text == text
    assert result.origins.count("sampled") == 1


def test_whitespace_is_the_models(held: Any) -> None:
    off = held.write(schema=FIXED, whitespace="flexible", forced=False)
    assert held.write(schema=FIXED, whitespace="flexible").tokens == off.tokens
    result = held.write(schema={**FIXED, "x-guidance": {"whitespace_flexible": False}})
    assert result.text == '{"a": [1, 1], "b": 2}'


FIXED = {
    "type": "object",
    "properties": {"a": {"const": [1, 1]}, "b": {"const": 2}},
    "required": ["a", "b"],
    "additionalProperties": False,
}


def at_hand() -> list[str]:
    """The tiny model's tokenizer and what there is of real ones."""
    found = [name for name in ("qwen3",) if (REAL / name / "tokenizer.json").exists()]
    return ["tiny", *found]


@pytest.mark.parametrize("name", at_hand())
def test_forced_text_is_what_the_tokenizer_makes_of_it(name: str, tokenizer: Any) -> None:
    """Whole replies, taken as the tokenizer encodes them, agree with what is forced on the way."""
    tokenizer = load(REAL / name) if name != "tiny" else tokenizer
    vocabulary = Vocabulary.of(tokenizer, frozenset(tokenizer.eos_token_ids))
    values = {"file_path": "src/app.py", "first_line": 1, "tags": ["ünï", "\U0001f600"]}
    schema = {
        "type": "object",
        "properties": {
            "file_path": {"type": "string"},
            "first_line": {"type": "integer"},
            "tags": {"type": "array", "items": {"type": "string"}},
        },
        "required": list(values),
        "additionalProperties": False,
    }
    matcher = vocabulary.matcher(Schema("json", json.dumps(schema)), "spaced")
    walk = Walk(matcher, vocabulary.spelled)
    forced = 0
    for token in tokenizer.encode(json.dumps(values, ensure_ascii=False), add_special_tokens=False):
        if walk.forced:
            forced += 1
            assert walk.forced[0] == token
        walk.take(token)
    assert walk.finished
    assert forced > 8


@pytest.mark.parametrize(
    "schema",
    [
        {"enum": ["<tool_call>x", "<tool>"]},
        {"const": {"<|im_end|>": ["日</think>", "<think"]}},
        {"regex": "a<\\|im_end\\|>b"},
        {"lark": 'start: "<tool_call>" ("<" | "</") "tool_call>"'},
        {"lark": 'start: TEXT "<|im_start|>"\nTEXT: /[a-z<|]{0,4}/'},
    ],
    ids=str,
)
def test_text_that_looks_like_a_special_token_is_written_as_text(
    held: Any, tokenizer: Any, schema: Any
) -> None:
    """llguidance's own mask would leave that token alone, and then refuse it."""
    special = set(tokenizer.added_tokens_decoder)
    for temperature in (0.0, 1.5):
        on, off = (
            held.write(schema=schema, forced=f, temperature=temperature) for f in (True, False)
        )
        assert on.tokens == off.tokens
        assert on.finish_reason == "stop"
        assert special.isdisjoint(on.tokens)
        assert re.search("<.+>", on.text)


def test_a_special_token_that_a_grammar_names_is_written_as_that_token(
    held: Any, tokenizer: Any
) -> None:
    result = held.write(schema={"lark": 'start: "a" <tool_call> "b"'})
    (called,) = tokenizer.encode("<tool_call>", add_special_tokens=False)
    assert called in result.tokens
