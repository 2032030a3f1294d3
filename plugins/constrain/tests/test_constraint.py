"""Ends, limits, logits of others, other plugins: the schema holds, and the engine stays itself."""

from __future__ import annotations

import json
from typing import Any, cast

import mlx.core as mx
import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from mlxfill import InputError, Policy, Proposal
from mlxfill_constrain import ConstrainSettings, plugin
from mlxfill_testing import Guest

NAME = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 30}, "done": {"type": "boolean"}},
    "required": ["name", "done"],
    "additionalProperties": False,
}
IDS = 1024
BOTH = pytest.mark.parametrize("forced", [True, False])


def encoded(tokenizer: Any, text: str) -> list[int]:
    ids: list[int] = tokenizer.encode(text, add_special_tokens=False)
    return ids


# --- ends ---------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("count", range(1, 14))
def test_max_tokens_cuts_anywhere(held: Any, count: int, forced: bool) -> None:
    whole = held.write(schema=NAME, forced=False)
    cut = held.write(schema=NAME, forced=forced, max_tokens=count)
    assert cut.tokens == whole.tokens[:count]
    assert cut.finish_reason == "length"
    assert sum(cut.stats.rounds) == len(cut.tokens)


@BOTH
def test_a_reply_that_is_whole_stops_at_its_last_token(held: Any, forced: bool) -> None:
    whole = held.write(schema=NAME, forced=forced)
    assert whole.finish_reason == "stop"
    again = held.write(schema=NAME, forced=forced, max_tokens=len(whole.tokens))
    assert (again.tokens, again.finish_reason) == (whole.tokens, "stop")


@BOTH
def test_without_an_end_of_turn_id_it_ends_as_well(held: Any, forced: bool) -> None:
    result = held.write(schema=NAME, forced=forced, eos_token_ids=())
    assert (result.tokens, result.finish_reason) == (held.write(schema=NAME).tokens, "stop")


@BOTH
def test_the_end_is_possible_exactly_where_the_reply_is_whole(
    held: Any, tokenizer: Any, forced: bool
) -> None:
    """``a{2,4}``, wanted as early as possible, and as late as possible."""
    (eos,), letter = tokenizer.eos_token_ids, encoded(tokenizer, "a")[0]
    for wish, length in ((eos, 2), (letter, 4)):
        bias = {wish: 1000.0}
        result = held.write(schema={"regex": "a{2,4}"}, logit_bias=bias, forced=forced)
        assert (result.text, result.finish_reason) == ("a" * length, "stop")


@BOTH
@pytest.mark.parametrize("stop", ["name", 'me"', ", "])
def test_stop_strings_end_where_they_would(held: Any, stop: str, forced: bool) -> None:
    whole = held.write(schema=NAME).text
    result = held.write(schema=NAME, stop=[stop], forced=forced)
    assert (result.text, result.finish_reason) == (whole[: whole.index(stop)], "stop")


def test_an_id_of_the_text_may_be_declared_an_end(held: Any, tokenizer: Any) -> None:
    name = encoded(tokenizer, "name")
    results = [held.write(schema=NAME, eos_token_ids=name[:1], forced=f) for f in (True, False)]
    assert results[0].tokens == results[1].tokens == encoded(tokenizer, '{"')
    assert results[0].finish_reason == "stop"


# --- logits of others ---------------------------------------------------------------------------


@BOTH
def test_logprobs_are_those_of_what_is_left(held: Any, forced: bool) -> None:
    result = held.write(schema=NAME, logprobs=True, top_logprobs=3, forced=forced)
    expected = held.write(schema=NAME, logprobs=True, top_logprobs=3, forced=False)
    assert result.logprobs == expected.logprobs
    assert result.top_logprobs == expected.top_logprobs
    assert len(result.logprobs) == len(result.tokens)
    assert result.logprobs[:2] == [0, 0]
    assert result.top_logprobs[0] == [(result.tokens[0], 0.0), *result.top_logprobs[0][1:]]
    assert json.loads(json.dumps(result.as_dict()))["top_logprobs"][0][1][1] is None


@BOTH
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_penalties_and_biases_work_behind_the_mask(
    held: Any, tokenizer: Any, temperature: float, forced: bool
) -> None:
    yes = [t for t in range(len(tokenizer.get_vocab())) if "t" in tokenizer.decode([t])]
    more = {
        "repetition_penalty": 1.5,
        "logit_bias": dict.fromkeys(yes, -1000.0),
        "temperature": temperature,
        "top_p": 0.9,
    }
    result = held.write(schema=NAME, forced=forced, **more)
    assert result.tokens == held.write(schema=NAME, forced=False, **more).tokens
    assert json.loads(result.text)["done"] is False


@BOTH
def test_what_others_ban_is_written_where_nothing_else_is_legal(
    held: Any, tokenizer: Any, forced: bool
) -> None:
    """CASES 15: forced text does not go through the logits, and they cannot stop it."""
    banned = dict.fromkeys(range(len(tokenizer.get_vocab())), float("-inf"))
    result = held.write(schema={"enum": ["yes"]}, logit_bias=banned, forced=forced)
    assert result.text == '"yes"'
    assert held.write(schema={"enum": [True]}, logit_bias=banned).text == "true"
    pick = held.write(schema={"enum": ["a", "b"]}, logit_bias=banned, forced=forced).text
    assert json.loads(pick) in {"a", "b"}


@BOTH
def test_a_half_precision_model_is_held_all_the_same(held: Any, forced: bool) -> None:
    """CASES 15: logits of 16 bits."""

    def halved(_: mx.array, logits: mx.array) -> mx.array:
        return (logits * 1000).astype(mx.float16)

    result = held.write(schema=NAME, logits_processors=[halved], forced=forced)
    json.loads(result.text)
    assert result.tokens == held.write(schema=NAME, logits_processors=[halved]).tokens


@BOTH
def test_processors_of_the_caller_see_each_position_once_and_cannot_break_the_schema(
    held: Any, forced: bool
) -> None:
    seen: list[list[int]] = []

    def shouting(tokens: mx.array, logits: mx.array) -> mx.array:
        seen.append(cast("list[int]", tokens.tolist()))
        return mx.where(mx.arange(logits.shape[-1]) == 7, 1e9, logits * 0)

    result = held.write(schema=NAME, logits_processors=[shouting], forced=forced)
    json.loads(result.text)
    session = [*held.prompt_ids, *result.tokens]
    start = len(held.prompt_ids)
    assert seen[: len(result.tokens)] == [session[:n] for n in range(start, len(session))]


# --- other plugins -----------------------------------------------------------------------------


class Sure:
    """Asserts the same ids at every position."""

    def __init__(self, ids: list[int]) -> None:
        self.ids, self.accepted = tuple(ids), 0

    def propose(self, view: Any) -> Proposal:  # noqa: ARG002
        return Proposal(self.ids, Policy.ASSERT, "template")

    def observe(self, ids: Any) -> None: ...

    def resolved(self, proposal: Any, accepted: int) -> None:  # noqa: ARG002
        self.accepted += accepted


@BOTH
@pytest.mark.parametrize("last", [True, False])
def test_what_others_assert_cannot_break_the_schema(
    held: Any, tokenizer: Any, forced: bool, last: bool
) -> None:
    sure = Sure(encoded(tokenizer, "<tool_call>\n"))
    guest = Guest(sources=[lambda _: sure])
    result = held.write(
        guest, schema=NAME, forced=forced, last=last, trusted=("constrain", "guest")
    )
    assert result.tokens == held.write(schema=NAME).tokens
    assert sure.accepted == 0
    without = held.write(guest, schema=None, trusted=("guest",), max_tokens=8)
    assert "template" in without.origins


def test_without_trust_forced_tokens_are_verified_and_all_right(held: Any) -> None:
    result = held.write(schema=NAME, trusted=())
    assert result.tokens == held.write(schema=NAME).tokens
    assert result.origins.count("grammar") > 4
    assert result.stats.fill["events"] == 0
    spec = result.stats.spec
    assert spec["accepted"] == spec["drafted"] == result.origins.count("grammar")


def test_a_drafter_that_knows_the_reply_is_accepted(held: Any) -> None:
    expected = held.write(schema=NAME)
    truth = [*held.prompt_ids, *expected.tokens]
    guest = evolve(Guest.drafting(truth, 1.0), name="drafter")
    result = held.write(guest, schema=NAME)
    assert result.tokens == expected.tokens
    assert {"draft", "grammar"} <= set(result.origins)


# --- reasoning ------------------------------------------------------------------------------------


@BOTH
def test_an_open_reasoning_block_comes_first(held: Any, tokenizer: Any, forced: bool) -> None:
    prompt = encoded(tokenizer, "Say it. <think>\n")
    end = tokenizer.think_end_tokens
    close = {"logit_bias": {end[0]: 4.0}, "prompt": prompt, "temperature": 1.0}
    result = held.write(schema=NAME, forced=forced, **close)
    at = result.tokens.index(end[0])
    assert json.loads(tokenizer.decode(result.tokens[at + 1 :])).keys() == {"name", "done"}
    assert at > 0
    assert result.tokens == held.write(schema=NAME, forced=False, **close).tokens


def test_a_closed_block_is_no_block(held: Any, tokenizer: Any) -> None:
    prompt = encoded(tokenizer, "Say it. <think>\n\n</think>\n\n")
    json.loads(held.write(schema=NAME, prompt=prompt).text)


def test_the_turn_cannot_end_within_reasoning(held: Any, tokenizer: Any) -> None:
    prompt = encoded(tokenizer, "Say it. <think>\n")
    (eos,) = tokenizer.eos_token_ids
    result = held.write(schema=NAME, prompt=prompt, logit_bias={eos: 1000.0}, max_tokens=9)
    assert (len(result.tokens), result.finish_reason) == (9, "length")


@given(order=st.lists(st.integers(0, 60), min_size=1, max_size=12), block=st.booleans())
@settings(max_examples=40)
def test_a_mask_depends_on_the_tokens_alone(
    held: Any, tokenizer: Any, order: list[int], block: bool
) -> None:
    """Positions in any order: what a refused draft led to is taken back."""
    prompt = [*held.prompt_ids, *encoded(tokenizer, "<think>\n" if block else "")]
    close = {tokenizer.think_end_tokens[0]: 4.0}
    with held.engine() as engine:
        run = engine.stream(prompt, schema=NAME, max_tokens=60, seed=5, logit_bias=close)
        tokens = [*prompt, *run.result().tokens]
    logits, moving = mx.zeros((1, IDS)), constraint_of(run.request)
    for at in order:
        upto = mx.array(tokens[: min(len(prompt) + at, len(tokens))])
        expected = constraint_of(run.request).mask(upto, logits)
        assert mx.array_equal(moving.mask(upto, logits), expected)


def constraint_of(request: Any) -> Any:
    """A new one."""
    return plugin.mlxfill_constraint(request, ConstrainSettings())


# --- several at once ------------------------------------------------------------------------


def test_rows_of_a_batch_are_held_each_to_its_own(held: Any) -> None:
    schemas = [NAME, {"enum": ["a", "b"]}, None, {"regex": "[0-9]{12}"}]
    asks = [
        {"prompt": held.prompt_ids, "schema": schema, "seed": 3, "max_tokens": 60, "temperature": t}
        for schema, t in zip(schemas, (0.0, 0.8, 0.8, 0.8), strict=True)
    ]
    with held.engine() as engine:
        together = engine.generate_batch(asks)
        alone = [engine.generate(ask.pop("prompt"), **ask) for ask in asks]
    assert [r.tokens for r in together] == [r.tokens for r in alone]
    assert [r.finish_reason for r in together] == [r.finish_reason for r in alone]


def test_an_audit_repeats_the_reply(held: Any) -> None:
    with held.engine() as engine:
        found = engine.audit(held.prompt_ids, schema=NAME, max_tokens=60)
    assert found.identical
    assert any(proposed.origin == "grammar" for proposed in found.proposed)


def test_a_reply_that_gets_too_complex_ends_with_the_reason(held: Any) -> None:
    endless = 'start: ("x" | "y") "a"{1000000}'
    with pytest.raises(InputError, match=r"schema cannot be used: .*Too many items"):
        held.write(schema={"lark": endless})


def test_forced_tokens_are_expected_where_they_have_been_frequent(
    held: Any, tokenizer: Any
) -> None:
    """Waiting for each token only pays near keys and punctuation."""
    with held.engine() as engine:
        request = engine.stream(held.prompt_ids, schema={"type": "string"}).request
    constraint = constraint_of(request)
    assert constraint.near()
    for token in encoded(tokenizer, '"' + "a long text in which nothing is forced " * 3):
        constraint.observe([token])
        assert constraint.propose(None) is None
    assert not constraint.near()
