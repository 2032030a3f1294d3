"""What the statistics of a result say about spans."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from mlxfill import Policy, Proposal
from mlxfill_testing import (
    Guest,
    ScriptedSource,
    engine_with,
    plain,
    plugged,
    shared_model,
    tiny_tokenizer,
)

PROMPT = [7, 30, 9, 11, 4]


class Counting(ScriptedSource):
    """Says nothing and counts."""

    counts: Any = None

    def propose(self, view: object) -> Proposal | None:  # noqa: ARG002
        return None


def counting(*counts: object) -> Guest:
    def make(own: object, request: Any) -> Counting:
        source = Counting(request=request, script=None)  # type: ignore[arg-type]
        source.counts = own
        return source

    return Guest(name="counting", sources=[partial(make, own) for own in counts])


def test_the_counters_of_sources_stand_in_the_statistics_added_up() -> None:
    guest = counting({"parse_fallback": 2, "rows": 1}, {"parse_fallback": 3})
    fill = plugged(shared_model("llama"), guest, PROMPT, 4).stats.fill
    assert (fill["parse_fallback"], fill["rows"]) == (5, 1)


@pytest.mark.parametrize("counts", [7, {"x": "many"}, {"x": 1.5}, {"x": True}, [("x", 1)], None])
def test_counters_that_are_none_are_left_out(counts: object) -> None:
    result = plugged(shared_model("llama"), counting(counts), PROMPT, 4)
    assert "x" not in result.stats.fill
    assert not result.faults


def ending_at(tokens: list[int], end: str) -> dict[str, Any]:
    """Options under which a reply ends, at its first ``tokens[-1]`` where it ends by a token."""
    text = tiny_tokenizer().decode(tokens[-1:])
    return {
        "length": {"max_tokens": len(tokens), "eos_token_ids": []},
        "eos": {"max_tokens": 60, "eos_token_ids": tokens[-1:]},
        "stop": {"max_tokens": 60, "eos_token_ids": [], "stop": [text]},
    }[end]


@pytest.mark.parametrize("end", ["length", "eos", "stop"])
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("guest", [Guest(), counting({})])
def test_plain_decoding_is_one_token_a_forward_however_it_ends(
    guest: Guest, rows: int, end: str
) -> None:
    model = shared_model("llama")
    options = ending_at(plain(model, PROMPT, 9).tokens, end)
    with engine_with(model, guest) as engine:
        other = {"prompt": PROMPT, "max_tokens": 20, "eos_token_ids": []}
        first, *others = engine.generate_batch(
            [{"prompt": PROMPT, **options}, *[other] * (rows - 1)]
        )
    for stats in (first.stats, *(other.stats for other in others)):
        assert stats.target_forwards == sum(stats.rounds) == len(stats.rounds) > 0
    assert first.finish_reason == ("length" if end == "length" else "stop")


@pytest.mark.parametrize("accuracy", [0.4, 1.0])
def test_each_forward_that_counts_brought_tokens(accuracy: float) -> None:
    model = shared_model("llama")
    truth = plain(model, PROMPT, 24).tokens
    with engine_with(model, Guest.offering([*PROMPT, *truth], accuracy)) as engine:
        stats = engine.generate(PROMPT, max_tokens=60, eos_token_ids=truth[-1:]).stats
    assert stats.target_forwards == len(stats.rounds) < stats.generated_tokens


def test_tokens_are_counted_by_where_they_came_from() -> None:
    model = shared_model("llama")
    truth = plain(model, PROMPT, 24).tokens
    result = plugged(model, Guest.offering([*PROMPT, *truth], 1.0), PROMPT, 24)
    spec = result.stats.spec
    (origin,) = spec["accepted_from"]
    assert spec["accepted_from"][origin] == spec["accepted"] == result.origins.count(origin) > 0
    assert spec["drafted_from"][origin] == spec["drafted"]


class Sure(ScriptedSource):
    def propose(self, view: Any) -> Proposal | None:
        if view.length != len(PROMPT) + 3:
            return None
        return Proposal(tuple(range(20, 40)), Policy.ASSERT, "fill")


def test_injected_spans_are_counted_by_length_origin_and_cut() -> None:
    def make(request: Any) -> Sure:
        return Sure(request=request, script=None)  # type: ignore[arg-type]

    guest = Guest(name="sure", sources=[make])
    with engine_with(shared_model("llama"), guest, trusted=["sure"]) as engine:
        fill = engine.generate(PROMPT, max_tokens=12, eos_token_ids=[]).stats.fill
    assert fill["injected_from"] == {"fill": 9}
    assert fill["injected"] == 9
    assert fill["span_lengths"] == [9]
    assert fill["truncations"] == 1
