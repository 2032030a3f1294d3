"""fill-strict on the tiny model: the replies of plain decoding, with fewer forwards."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

import mlxfill
import mlxfill_model_tiny

ASKS = int(os.environ.get("MLXFILL_ASKS", "12"))
"""How many tool asks are tried; ``MLXFILL_ASKS=120`` for a thorough run."""
INJECTED = {"template", "schema"}
QUICK: dict[str, Any] = {"temperature": 0.0, "template_options": {"enable_thinking": False}}


def engine(*plugins: str, **settings: Any) -> Any:
    config = {"gate": {"enabled": False}, "plugins": {"fill-strict": settings}}
    return mlxfill.load(
        "tiny", plugins=plugins, config=config if settings else {"gate": {"enabled": False}}
    )


@pytest.fixture(scope="module")
def plain() -> Iterator[Any]:
    with engine() as loaded:
        yield loaded


@pytest.fixture(scope="module")
def strict() -> Iterator[Any]:
    with engine("fill-strict") as loaded:
        yield loaded


@pytest.fixture(scope="module")
def verified() -> Iterator[Any]:
    with engine("fill-strict", policy="verify") as loaded:
        yield loaded


@pytest.fixture(scope="module")
def asks() -> list[Any]:
    return mlxfill_model_tiny.held_out_asks(ASKS)


def injected(result: Any) -> int:
    return sum(origin in INJECTED for origin in result.origins)


@pytest.mark.parametrize("thinking", [False, True], ids=["answers", "thinks"])
def test_replies_are_those_of_plain_decoding(
    plain: Any, strict: Any, verified: Any, asks: list[Any], *, thinking: bool
) -> None:
    options = {**QUICK, "template_options": {"enable_thinking": thinking}, "max_tokens": 200}
    shares = []
    for ask in asks[: ASKS // 4] if thinking else asks:
        expected = plain.generate(ask.messages, tools=ask.tools, **options)
        one = verified.generate(ask.messages, tools=ask.tools, **options)
        assert one.tokens == expected.tokens
        assert one.faults == []
        other = strict.generate(ask.messages, tools=ask.tools, **options)
        assert other.faults == []
        if mlxfill_model_tiny.judge(ask, expected.text).well_formed:
            assert other.tokens == expected.tokens
            assert other.stats.target_forwards < expected.stats.target_forwards
            assert other.stats.fill["wasted_samples"] == 0
            shares.append(injected(other) / len(other.tokens))
    print(f"injected: {sum(shares) / len(shares):.0%} of {len(shares)} well-formed calls")  # noqa: T201
    assert sum(shares) / len(shares) > (0.2 if thinking else 0.3)


def test_nearly_half_of_a_call_with_one_argument_is_injected(strict: Any, asks: list[Any]) -> None:
    found = [
        strict.generate(ask.messages, tools=ask.tools, **QUICK)
        for ask in asks
        if ask.tool in {"read_file", "search_code", "lookup_order", "list_dir"}
    ]
    assert found
    assert sum(map(injected, found)) / sum(len(result.tokens) for result in found) > 0.45


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_sampled_replies_are_those_of_plain_decoding_under_the_same_seed(
    plain: Any, strict: Any, verified: Any, asks: list[Any], seed: int
) -> None:
    ask = asks[seed]
    options = {**QUICK, "temperature": 0.7, "seed": seed, "max_tokens": 100}
    expected = plain.generate(ask.messages, tools=ask.tools, **options)
    assert verified.generate(ask.messages, tools=ask.tools, **options).tokens == expected.tokens
    if mlxfill_model_tiny.judge(ask, expected.text).well_formed:
        assert strict.generate(ask.messages, tools=ask.tools, **options).tokens == expected.tokens


def test_every_budget_is_exact(plain: Any, strict: Any, asks: list[Any]) -> None:
    ask = asks[0]
    whole = plain.generate(ask.messages, tools=ask.tools, **QUICK).tokens
    for budget in range(1, 16):
        result = strict.generate(ask.messages, tools=ask.tools, max_tokens=budget, **QUICK)
        assert result.tokens == whole[:budget]
        assert result.finish_reason == "length"


@pytest.mark.parametrize("stop", ['"name"', "argu", '{"', ": "])
def test_a_stop_string_inside_a_span_fires_where_it_would(
    plain: Any, strict: Any, asks: list[Any], stop: str
) -> None:
    ask = asks[0]
    options = {**QUICK, "stop": [stop]}
    expected = plain.generate(ask.messages, tools=ask.tools, **options)
    result = strict.generate(ask.messages, tools=ask.tools, **options)
    assert result.text == expected.text
    assert result.finish_reason == expected.finish_reason == "stop"


def test_a_reply_may_be_left_inside_a_span_and_its_caches_be_used_again(
    strict: Any, asks: list[Any]
) -> None:
    ask = asks[0]
    run = strict.stream(ask.messages, tools=ask.tools, keep_cache=True, **QUICK)
    pieces = [next(run) for _ in range(4)]
    run.close()
    assert [piece.origin for piece in pieces] == ["sampled", "template", "template", "template"]
    held = mlxfill.PromptCache(run.stats.cache_tokens, run.state.forwarder.caches)
    assert held.tokens[-4:-1] != ()
    prompt = [*held.tokens, *strict.tokenizer.encode(" get", add_special_tokens=False)]
    again = strict.generate(prompt, cache=held, max_tokens=8, **QUICK)
    fresh = strict.generate(prompt, max_tokens=8, **QUICK)
    assert again.stats.cached_tokens == len(held.tokens)
    assert again.tokens == fresh.tokens


def test_plain_questions_are_answered_in_words_although_tools_are_offered(
    plain: Any, strict: Any, asks: list[Any]
) -> None:
    messages = [{"role": "user", "content": "What can you do?"}]
    expected = plain.generate(messages, tools=asks[0].tools, max_tokens=60, **QUICK)
    result = strict.generate(messages, tools=asks[0].tools, max_tokens=60, **QUICK)
    assert result.tokens == expected.tokens
    assert injected(result) == 0 or "<tool_call>" in expected.text


def test_spans_are_appended_in_chunks_if_asked(strict: Any, asks: list[Any]) -> None:
    ask = asks[0]
    whole = strict.generate(ask.messages, tools=ask.tools, **QUICK)
    parts = strict.generate(ask.messages, tools=ask.tools, append_chunk=2, **QUICK)
    assert parts.tokens == whole.tokens
    assert parts.origins == whole.origins
    assert parts.stats.target_forwards > whole.stats.target_forwards


def test_without_trust_the_model_verifies(plain: Any, asks: list[Any]) -> None:
    ask = asks[0]
    config = {"gate": {"enabled": False}, "trust": {"assert": []}}
    with mlxfill.load("tiny", plugins=["fill-strict"], config=config) as wary:
        result = wary.generate(ask.messages, tools=ask.tools, **QUICK)
    assert result.tokens == plain.generate(ask.messages, tools=ask.tools, **QUICK).tokens
    assert result.stats.fill["events"] == 0
    assert result.stats.spec["accepted"] > 0
