"""A reply is the text that was asked for, also where a decoder leaves out its first space."""

from __future__ import annotations

import re
from typing import Any

import pytest

from mlxfill import Engine, load_config
from mlxfill.plugins import PluginManager
from mlxfill_constrain import plugin
from mlxfill_testing import shared_model
from tokenizers_of import tokenizers_by_kind

KINDS = ("byte level", "byte level, naive", "bytes", "bytes, stripped")
IDS = 1024


def engine_of(kind: str) -> Engine:
    config = load_config({"gate": {"enabled": False}, "trust": {"assert": ["constrain"]}})
    manager = PluginManager([("constrain", plugin)], config=config)
    model, tokenizer = shared_model("llama", vocab_size=IDS), tokenizers_by_kind()[kind]
    return Engine(model, tokenizer, plugins=manager, config=config)


REGEXES = (
    " yes",
    "yes",
    "  yes",
    " (yes|no)",
    "( yes|no)",
    " ?yes",
    "[ ab]{5}",
    "\nyes",
    "(?i) yes",
    "a|  b",
)
GRAMMARS = {
    'start: " yes"': " yes",
    'start: A "no"\nA: " " | "a"': "[ a]no",
    'start: one | "b"\none: "  " "a"': "  a|b",
}
ASKED: list[tuple[dict[str, Any], str]] = [
    *(({"regex": each}, each) for each in REGEXES),
    *(({"lark": each}, meant) for each, meant in GRAMMARS.items()),
    ({"enum": [" yes"]}, '" yes"'),
]


@pytest.mark.parametrize("kind", KINDS)
def test_a_reply_may_begin_with_a_space(kind: str) -> None:
    with engine_of(kind) as engine:
        for schema, meant in ASKED:
            for seed in range(4):
                sampled: dict[str, Any] = {"temperature": 2.0, "seed": seed}
                result = engine.generate([5, 6, 7], max_tokens=30, schema=schema, **sampled)
                assert result.finish_reason == "stop", schema
                assert re.fullmatch(meant, result.text), (schema, result.text)
                assert (
                    "".join(
                        piece.text
                        for piece in engine.stream(
                            [5, 6, 7], max_tokens=30, schema=schema, **sampled
                        )
                    )
                    == result.text
                )


def test_what_no_space_begins_is_written_as_before() -> None:
    with engine_of("bytes, stripped") as engine:
        tokens = engine.generate([5, 6, 7], max_tokens=9, schema={"regex": "yes"}).tokens
        assert "".join(engine.tokenizer.convert_ids_to_tokens(tokens)).startswith("yes")
