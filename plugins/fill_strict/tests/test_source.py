"""The source between the engine and the rows: how much it offers, and when."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import pytest

from mlxfill import InputError, Policy, Proposal
from mlxfill_fill_strict import StrictSettings, compiled_rows, plugin

CLOSED = {"additionalProperties": False}
CALL = '<tool_call>\n{"name": "get", "arguments": {"path": "a.py"}}\n</tool_call>'


@pytest.fixture
def request_(families: Any, make_tool: Any) -> Any:
    tools = [make_tool("get", "path", **CLOSED), make_tool("write", "path", "text", **CLOSED)]
    return families.request(families.tokenizer("hermes"), tools)


def source_of(request: Any, **settings: Any) -> Any:
    sources = plugin.mlxfill_proposal_sources(request, StrictSettings(**settings))
    assert sources is not None
    return sources[0]


def encoded(request: Any, text: str) -> list[int]:
    ids: list[int] = request.tokenizer.encode(text, add_special_tokens=False)
    return ids


@pytest.mark.parametrize("policy", ["assert", "verify"])
def test_offers_carry_policy_origin_and_evidence(request_: Any, policy: str) -> None:
    source = source_of(request_, policy=policy)
    assert source.propose(None) is None
    source.observe(encoded(request_, "<tool_call>"))
    proposal = source.propose(None)
    assert proposal == Proposal(proposal.ids, Policy(policy), "template", evidence=1)
    assert request_.tokenizer.decode(proposal.ids) == '\n{"name": "'
    source.observe([*proposal.ids, *encoded(request_, "get")])
    proposal = source.propose(None)
    assert (proposal.origin, proposal.evidence) == ("schema", 7)


def test_a_long_span_is_offered_in_parts(request_: Any) -> None:
    source = source_of(request_, max_span=2)
    source.observe(encoded(request_, "<tool_call>"))
    found: list[int] = []
    while proposal := source.propose(None):
        assert len(proposal.ids) <= 2
        found += proposal.ids
        source.observe(proposal.ids)
    assert request_.tokenizer.decode(found) == '\n{"name": "'


def test_the_rest_is_offered_as_long_as_the_reply_agrees(request_: Any) -> None:
    source = source_of(request_)
    source.observe(encoded(request_, "<tool_call>"))
    first = source.propose(None)
    source.resolved(first, 1)
    source.observe(first.ids[:1])
    assert source.propose(None).ids == first.ids[1:]
    source.observe([5])
    assert source.propose(None) is None


def test_a_trigger_is_announced_one_token_before(families: Any, make_tool: Any) -> None:
    tools = [make_tool("get_file", "path", **CLOSED), make_tool("get_dir", "path", **CLOSED)]
    request = families.request(families.tokenizer("thinking_xml"), tools)
    reply = encoded(
        request, "Hm.\n</think>\n\n<tool_call>\n<function=get_file>\n<parameter=path>\nx"
    )
    source = source_of(request)
    announced = []
    for at, token in enumerate(reply):
        if source.near():
            announced.append(at)
        source.observe([token])
    first_offer = families.replay(request, reply).spans[0].at
    assert first_offer - 1 in announced
    assert len(announced) < len(reply) // 2


def test_nothing_is_announced_that_the_model_verifies(request_: Any) -> None:
    source = source_of(request_, policy="verify")
    for token in encoded(request_, CALL):
        assert not source.near()
        source.observe([token])


def test_requests_without_tools_or_rows_have_no_source(families: Any, make_tool: Any) -> None:
    for name, tools in (("hermes", None), ("silent", [make_tool("get", "path")])):
        request = families.request(families.tokenizer(name), tools)
        assert plugin.mlxfill_proposal_sources(request, None) is None
        assert plugin.mlxfill_delimiters(request) is None


def test_delimiters_are_handed_to_the_engine(request_: Any) -> None:
    assert plugin.mlxfill_delimiters(request_) == compiled_rows(request_).delimiters
    assert compiled_rows(request_).delimiters


def lines_run(call: Any) -> int:
    count = 0

    def trace(frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal count
        count += event == "line" and "mlxfill_fill_strict" in frame.f_code.co_filename
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("length", [10, 10_000])
def test_a_token_that_fires_nothing_costs_a_look_into_two_dicts(request_: Any, length: int) -> None:
    source = source_of(request_)
    source.observe(encoded(request_, "word ") * length)

    def step() -> None:
        source.observe([70])
        assert source.propose(None) is None
        assert not source.near()

    assert lines_run(step) <= 10


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"policy": "trust"}, "policy must be 'assert' or 'verify', not 'trust'"),
        ({"policy": True}, "policy must be 'assert' or 'verify', not True"),
        ({"max_span": 1}, "max_span must be a whole number of at least 2, not 1"),
        ({"max_span": 2.5}, "max_span must be a whole number of at least 2, not 2.5"),
        ({"max_span": True}, "max_span must be a whole number of at least 2, not True"),
    ],
)
def test_an_illegal_setting_is_named(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        StrictSettings(**values)
    assert str(caught.value) == message
