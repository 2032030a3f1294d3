"""Rows with the real plugins: in company each request says what it would say alone, plainly."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import mlxfill
from mlxfill import Engine, RowScheduler
from mlxfill_model_tiny import Ask, held_out_asks

if TYPE_CHECKING:
    from mlxfill.engine import Result

# Windows and steps are bit-identical on the CPU with the BLAS of the wheel, not on every GPU.
mx.set_default_device(mx.cpu)

FILLS = ("fill-strict", "fill-echo", "spec-ngram")
COMPANIES: dict[str, tuple[tuple[str, ...], str | None]] = {
    "lookups": (("spec-ngram",), None),
    "fills": (FILLS, None),
    "drafts": (("spec-two-model",), "tiny-draft"),
    "head": (("spec-qwen-mtp",), "tiny-mtp"),
    "blocks": (("spec-dflash",), "tiny-dflash"),
    "fills and drafts": ((*FILLS, "spec-two-model"), "tiny-draft"),
    "fills and head": ((*FILLS, "spec-qwen-mtp"), "tiny-mtp"),
    "fills and blocks": ((*FILLS, "spec-dflash"), "tiny-dflash"),
}
ORIGINS = {
    "lookups": {"ngram"},
    "fills": {"template", "ngram"},
    "drafts": {"draft"},
    "head": {"mtp"},
    "blocks": {"draft"},
    "fills and drafts": {"template", "draft", "ngram"},
    "fills and head": {"template", "mtp", "ngram"},
    "fills and blocks": {"template", "draft", "ngram"},
}
FREE = {"gate": {"enabled": False}, "cache": {"max_entries": 40}}
LONGEST = 45
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 9},
        "count": {"type": "integer", "minimum": 0, "maximum": 99},
    },
    "required": ["name", "count"],
    "additionalProperties": False,
}
SETTINGS: tuple[dict[str, Any], ...] = (
    {},
    {"temperature": 0.8, "seed": 3},
    {"temperature": 1.1, "seed": 8, "top_p": 0.9, "min_p": 0.02},
    {"repetition_penalty": 1.2, "logprobs": True},
    {"temperature": 0.6, "seed": 5, "presence_penalty": 0.4, "top_logprobs": 2},
    {"stop": ["\n\n", "file"], "frequency_penalty": 0.1},
    {"logit_bias": {51: -3.0}, "append_chunk": 3},
    {"kv_bits": 8, "kv_group_size": 32, "quantized_kv_start": 0},
    {"schema": SCHEMA, "temperature": 0.9, "seed": 2},
)


@cache
def asks() -> list[Ask]:
    return held_out_asks(6)


@cache
def engine(company: str) -> Engine:
    """One engine for all examples, as a server has it."""
    plugins, draft = COMPANIES[company]
    return mlxfill.load("tiny", draft=draft, plugins=[*plugins, "constrain"], config=FREE)


@cache
def plain() -> Engine:
    return mlxfill.load("tiny", plugins=["constrain"], config=FREE)


@cache
def alone(ask: int, setting: int) -> Result:
    return plain().generate(**asked(ask, setting, LONGEST))


def asked(ask: int, setting: int, count: int) -> dict[str, Any]:
    chosen = asks()[ask]
    options = {"max_tokens": count, **SETTINGS[setting]}
    return {"prompt": list(chosen.messages), "tools": list(chosen.tools), **options}


def same(result: Result, expected: Result, count: int) -> None:
    """The same as alone, as far as ``count`` tokens go."""
    assert result.faults == []
    assert result.tokens == expected.tokens[:count]
    if count > len(expected.tokens):
        assert (result.text, result.finish_reason) == (expected.text, expected.finish_reason)
        assert result.tool_calls == expected.tool_calls
    if expected.logprobs is not None:
        assert result.logprobs == pytest.approx(expected.logprobs[:count], abs=1e-4)


REQUEST = st.tuples(
    st.integers(0, 5),
    st.integers(0, len(SETTINGS) - 1),
    st.integers(1, LONGEST),
    st.integers(0, 20),  # the round in which it arrives
)


@pytest.mark.parametrize("company", COMPANIES)
@settings(max_examples=3, phases=[Phase.generate])  # an example takes a second: no shrinking
@given(
    st.lists(REQUEST, min_size=2, max_size=4),
    st.integers(1, 4),
    st.sets(st.integers(0, 4), max_size=1),
)
def test_whoever_comes_and_goes_the_others_say_the_same(
    company: str,
    requests: list[tuple[int, int, int, int]],
    max_rows: int,
    leaving: set[int],
) -> None:
    rows = RowScheduler(engine(company), max_rows=max_rows)
    runs = [engine(company).stream(**asked(*request[:3])) for request in requests]
    said = dict.fromkeys(runs, 0)
    coming = sorted(range(len(runs)), key=lambda at: requests[at][3])
    number = 0
    while coming or len(rows):
        while coming and requests[coming[0]][3] <= number:
            rows.add(runs[coming.pop(0)])
        for run, piece in rows.round():
            said[run] += piece.token is not None
        for at in leaving & set(range(len(runs))):
            if said[runs[at]] > 5:
                rows.drop(runs[at])
        number += 1
    for run, (ask, setting, count, _) in zip(runs, requests, strict=True):
        result = run.result()
        left = result.finish_reason == "cancelled"
        assert not left or runs.index(run) in leaving
        same(result, alone(ask, setting), len(result.tokens) if left else count)


@pytest.mark.parametrize("company", COMPANIES)
def test_what_the_plugins_know_is_used_in_company(company: str) -> None:
    """All at once: every row drafts or is filled, in fewer forwards than tokens."""
    rows = RowScheduler(engine(company))
    chosen = [(0, 0), (1, 1), (2, 2), (3, 3), (4, 4), (5, 5), (0, len(SETTINGS) - 1)]
    runs = [engine(company).stream(**asked(*each, LONGEST)) for each in chosen]
    for run in runs:
        rows.add(run)
    while len(rows):
        rows.round()
    origins: set[str] = set()
    for each, run in zip(chosen, runs, strict=True):
        result = run.result()
        same(result, alone(*each), LONGEST)
        origins |= set(result.origins)
    assert origins >= {"grammar", *ORIGINS[company]}
    assert sum(run.stats.target_forwards for run in runs) < sum(
        len(run.state.reply.tokens) for run in runs
    )


# --- sessions ----------------------------------------------------------------------


def turn(company: str, talks: dict[str, list[dict[str, Any]]], tools: Any) -> list[Result]:
    """The next reply of each conversation, all in one batch."""
    return engine(company).generate_batch(
        [
            {"messages": list(talk), "tools": tools[name], "session": name, "max_tokens": 30}
            for name, talk in talks.items()
        ]
    )


@pytest.mark.parametrize("company", ["fills", "drafts", "fills and head"])
def test_later_turns_of_sessions_in_rows_are_those_of_fresh_runs(company: str) -> None:
    chosen = {"a": asks()[0], "b": asks()[0], "c": asks()[1], "d": asks()[4]}
    talks = {name: list(ask.messages) for name, ask in chosen.items()}
    talks["b"][-1] = {"role": "user", "content": "What can you do?"}  # begins like a
    tools = {name: list(ask.tools) for name, ask in chosen.items()}
    for number in range(2):
        replies = turn(company, talks, tools)
        cached: dict[str, int] = {}
        for (name, talk), result in zip(talks.items(), replies, strict=True):
            fresh = plain().generate(list(talk), tools=tools[name], max_tokens=30)
            assert result.faults == []
            assert (result.tokens, result.text) == (fresh.tokens, fresh.text)
            cached[name] = result.stats.cached_tokens
        assert any(cached.values()) == (number > 0), cached
        # Where the thought is left out of the next prompt, a head may rather have it read again.
        assert number == 0 or company == "fills and head" or all(cached.values()), cached
        for talk, result in zip(talks.values(), replies, strict=True):
            talk += [
                {"role": "assistant", "content": result.text},
                {"role": "user", "content": f"And then, after {number}?"},
            ]
