"""The Responses API through OpenAI's own client, and beside chat completions."""

from __future__ import annotations

import json
from itertools import count
from typing import TYPE_CHECKING, Annotated, Any

import openai
import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import BaseModel, Field, TypeAdapter

from mlxfill_model_tiny import held_out_asks
from mlxfill_serve.errors import ApiError
from mlxfill_serve.jobs import Ended, Token
from mlxfill_serve.reply import ReplyReader
from mlxfill_serve.responses.bodies import MessageItem, ResponsesBody
from mlxfill_serve.responses.choice import ResponseChoice
from mlxfill_serve.responses.store import ResponseStore

if TYPE_CHECKING:
    from collections.abc import Iterable

    import httpx

    import mlxfill

PATH, CHAT = "/v1/responses", "/v1/chat/completions"
ASKED = "Where is send_key used?"
BRIEF = "You are a helpful assistant."
ASK = held_out_asks(1)[0]
TOOLS: Any = [{"type": "function", **tool["function"]} for tool in ASK.tools]
CALLED, OTHER = ASK.tool, next(t["name"] for t in TOOLS if t["name"] != ASK.tool)
RESULT = "src/page.py:12: send_key(value)"
EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)


class Place(BaseModel):
    """What a reply may have to be."""

    city: Annotated[str, Field(max_length=8)]
    ok: bool


def asked(http: httpx.Client, **body: Any) -> dict[str, Any]:
    """A response, which is one by OpenAI's types."""
    answer = http.post(PATH, json=body)
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    Response.model_validate(told)
    return told


def streamed(http: httpx.Client, **body: Any) -> list[dict[str, Any]]:
    """The events of a stream, which are some by OpenAI's types."""
    answer = http.post(PATH, json={**body, "stream": True})
    assert answer.status_code == 200, answer.text
    events = []
    for block in answer.text.strip().split("\n\n"):
        name, data = block.split("\n")
        events.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {events[-1]['type']}"
        EVENT.validate_python(events[-1])
    return events


def said(output: Iterable[dict[str, Any]]) -> list[Any]:
    """What items say, without what is new in each response."""
    return [
        (item["type"], item["name"], item["arguments"])
        if item["type"] == "function_call"
        else (item["type"], "".join(part["text"] for part in item["content"]))
        for item in output
    ]


def said_in_chat(http: httpx.Client, **body: Any) -> list[Any]:
    """The same of the reply of a chat completion."""
    answer = http.post(CHAT, json=body)
    assert answer.status_code == 200, answer.text
    message = answer.json()["choices"][0]["message"]
    texts = [("reasoning", message.get("reasoning_content")), ("message", message["content"])]
    calls = [call["function"] for call in message.get("tool_calls") or ()]
    return [
        *(each for each in texts if each[1]),
        *(("function_call", call["name"], call["arguments"]) for call in calls),
    ]


def called(http: httpx.Client, **body: Any) -> dict[str, Any]:
    """A response that ends in a call."""
    response = asked(http, input=ASKED, instructions=BRIEF, tools=TOOLS, **body)
    assert response["output"][-1]["type"] == "function_call"
    return response


def result_of(response: dict[str, Any]) -> dict[str, Any]:
    """What the call gave."""
    call_id = response["output"][-1]["call_id"]
    return {"type": "function_call_output", "call_id": call_id, "output": RESULT}


# --- the same as chat ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "options", [{}, {"temperature": 1.5, "seed": 5, "top_p": 0.9}], ids=["greedy", "drawn"]
)
@pytest.mark.parametrize("tools", [False, True], ids=["text", "tools"])
def test_a_response_says_what_chat_says(
    http: httpx.Client, options: dict[str, Any], *, tools: bool
) -> None:
    messages = [{"role": "system", "content": BRIEF}, {"role": "user", "content": ASKED}]
    in_chat: dict[str, Any] = {"tools": ASK.tools} if tools else {}
    here: dict[str, Any] = {"tools": TOOLS} if tools else {}
    expected = said_in_chat(http, messages=messages, max_tokens=90, **options, **in_chat)
    body = {"input": ASKED, "instructions": BRIEF, "max_output_tokens": 90, **options, **here}
    whole = asked(http, **body)
    assert said(whole["output"]) == expected
    last = streamed(http, **body)[-1]["response"]
    assert said(last["output"]) == expected
    assert last["usage"]["output_tokens"] == whole["usage"]["output_tokens"]


def test_items_of_a_reply_become_the_turn_that_chat_knows(http: httpx.Client) -> None:
    first = called(http)
    thought, call = first["output"]
    function = {"name": call["name"], "arguments": call["arguments"]}
    turn = {
        "role": "assistant",
        "content": "One moment.",
        "reasoning_content": thought["content"][0]["text"],
        "tool_calls": [{"id": call["call_id"], "type": "function", "function": function}],
    }
    messages = [
        {"role": "system", "content": BRIEF},
        {"role": "user", "content": ASKED},
        turn,
        {"role": "tool", "tool_call_id": call["call_id"], "content": RESULT},
    ]
    expected = said_in_chat(http, messages=messages, tools=ASK.tools)
    counted = http.post(CHAT, json={"messages": messages, "tools": ASK.tools, "max_tokens": 1})
    between = {"role": "assistant", "content": [{"type": "output_text", "text": "One moment."}]}
    parts = [{"type": "input_text", "text": RESULT[:9]}, {"type": "input_text", "text": RESULT[9:]}]
    items = [
        {"role": "user", "content": [{"type": "input_text", "text": ASKED}]},
        thought,
        between,
        call,
        {**result_of(first), "output": parts},
    ]
    response = asked(http, input=items, instructions=BRIEF, tools=TOOLS)
    assert said(response["output"]) == expected
    assert response["usage"]["input_tokens"] == counted.json()["usage"]["prompt_tokens"]


# --- the client ---------------------------------------------------------------------------


def test_the_client_reads_a_response(client: openai.OpenAI) -> None:
    response = client.responses.create(model="tiny", input=ASKED, metadata={"a": "b"})
    assert response.status == "completed"
    assert response.output_text
    assert response.metadata == {"a": "b"}
    assert response.usage is not None
    assert response.usage.total_tokens == response.usage.input_tokens + response.usage.output_tokens
    assert 0 < response.usage.output_tokens_details.reasoning_tokens < response.usage.output_tokens


def test_the_client_puts_a_stream_together(client: openai.OpenAI) -> None:
    with client.responses.stream(model="tiny", input=ASKED) as stream:
        pieces = [e.delta for e in stream if e.type == "response.output_text.delta"]
        final = stream.get_final_response()
    assert "".join(pieces) == final.output_text
    assert final.output_text == client.responses.create(model="tiny", input=ASKED).output_text


def test_the_client_parses_what_has_a_schema(client: openai.OpenAI) -> None:
    parsed = client.responses.parse(model="tiny", input=ASKED, text_format=Place).output_parsed
    assert isinstance(parsed, Place)
    with client.responses.stream(model="tiny", input=ASKED, text_format=Place) as stream:
        stream.until_done()
        assert stream.get_final_response().output_parsed == parsed


def test_an_agent_calls_a_tool_and_answers(client: openai.OpenAI) -> None:
    history: list[Any] = [{"role": "user", "content": ASKED}]
    settings: Any = {"model": "tiny", "instructions": BRIEF, "tools": TOOLS}
    first = client.responses.create(input=history, **settings)
    history += first.output
    (call,) = [item for item in first.output if item.type == "function_call"]
    assert (call.name, json.loads(call.arguments)) == (CALLED, ASK.arguments)
    history.append({"type": "function_call_output", "call_id": call.call_id, "output": RESULT})
    second = client.responses.create(input=history, **settings)
    assert "src/page.py" in second.output_text


# --- streams ------------------------------------------------------------------------------


def test_events_come_in_openais_order(http: httpx.Client) -> None:
    events = streamed(http, input=ASKED, instructions=BRIEF, tools=TOOLS)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    kinds = [event["type"].removeprefix("response.") for event in events]
    without_repeats = [k for k, before in zip(kinds, ["", *kinds], strict=False) if k != before]
    assert without_repeats == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "reasoning_text.delta",
        "reasoning_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "completed",
    ]
    assert kinds.count("function_call_arguments.delta") > 1
    begun, ended = events[0]["response"], events[-1]["response"]
    assert (begun["status"], begun["output"], begun["usage"]) == ("in_progress", [], None)
    assert begun["id"] == ended["id"]
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert done == ended["output"]


def test_pieces_add_up_to_their_items(http: httpx.Client) -> None:
    events = streamed(http, input=ASKED, max_output_tokens=60)
    texts: dict[str, str] = {}
    for event in events:
        if event["type"].endswith(".delta"):
            texts[event["item_id"]] = texts.get(event["item_id"], "") + event["delta"]
    for item in events[-1]["response"]["output"]:
        assert texts.pop(item["id"]) == item["content"][0]["text"]
    assert texts == {}


def test_each_text_and_call_is_an_item_in_its_order(plain: mlxfill.Engine) -> None:
    call = f'<tool_call>\n{{"name": "{CALLED}", "arguments": {{"query": "%s"}}}}\n</tool_call>'
    text = f"<think>Hm.</think>\n\nTwo of them.{call % 'a'}\n{call % 'b'}Done."
    reader = ReplyReader(plain.tokenizer, ASK.tools, "")
    choice = ResponseChoice(reader, plain.tokenizer, with_logprobs=False)
    events: list[Any] = []
    for at in range(0, len(text), 3):
        events += choice.feed(Token(text[at : at + 3], 0, "sampled"))
    stats = plain.generate(ASKED, max_tokens=1).stats
    events += choice.end(Ended("stop", stats))
    assert said(choice.output) == [
        ("reasoning", "Hm."),
        ("message", "Two of them."),
        ("function_call", CALLED, '{"query": "a"}'),
        ("function_call", CALLED, '{"query": "b"}'),
        ("message", "Done."),
    ]
    places = [event["output_index"] for event in events]
    assert places == sorted(places)
    added = [e["item"]["id"] for e in events if e["type"] == "response.output_item.added"]
    assert added == [item["id"] for item in choice.output]


def test_what_was_cut_off_is_incomplete(http: httpx.Client) -> None:
    for response in (
        asked(http, input=ASKED, max_output_tokens=20),
        streamed(http, input=ASKED, max_output_tokens=20)[-1]["response"],
    ):
        assert response["status"] == "incomplete"
        assert response["incomplete_details"] == {"reason": "max_output_tokens"}
        assert [item["status"] for item in response["output"]] == ["completed", "incomplete"]
        assert response["usage"]["output_tokens"] == 20


def endless(served: Any) -> dict[str, Any]:
    """A request that goes on until something ends it."""
    ends = served.worker.engine.tokenizer.eos_token_ids
    bias = {str(token): -1000 for token in ends}
    return {"input": ASKED, "max_output_tokens": 20_000, "logit_bias": bias}


def test_a_client_that_leaves_ends_the_reply(served: Any, http: httpx.Client) -> None:
    body = {**endless(served), "stream": True}
    with http.stream("POST", PATH, json=body) as response:
        lines = response.iter_lines()  # which hangs up when it is no more
        assert next(lines) == "event: response.created"
        assert served.worker.outstanding == 1
    assert served.idle()


def test_a_response_that_fails_says_so(serve_tiny: Any) -> None:
    with serve_tiny(timeout=100, hang=0, clock=count().__next__) as served, served.http() as http:
        last = streamed(http, **endless(served))[-1]
        whole = http.post(PATH, json=endless(served))
    assert last["type"] == "response.failed"
    assert last["response"]["status"] == "failed"
    assert "took longer than" in last["response"]["error"]["message"]
    assert whole.status_code == 504


# --- what was said earlier ----------------------------------------------------------------


def test_a_conversation_goes_on_in_three_ways(http: httpx.Client) -> None:
    first = called(http)
    name, result = first["id"], result_of(first)
    start = {"role": "user", "content": ASKED}
    references = [{"type": "item_reference", "id": item["id"]} for item in first["output"]]
    inputs: list[dict[str, Any]] = [
        {"input": [start, *first["output"], result]},
        {"input": [start, *references, result]},
        {"input": [result], "previous_response_id": name},
    ]
    settings: Any = {"instructions": BRIEF, "tools": TOOLS}
    answers = [asked(http, **each, **settings) for each in inputs]
    assert len({json.dumps(said(answer["output"])) for answer in answers}) == 1
    assert len({answer["usage"]["input_tokens"] for answer in answers}) == 1
    assert answers[-1]["previous_response_id"] == name
    later = {"input": "And now?", "previous_response_id": answers[-1]["id"], **settings}
    assert asked(http, **later)["usage"]["input_tokens"] > answers[-1]["usage"]["input_tokens"]


def test_what_is_not_kept_cannot_be_gone_on_from(client: openai.OpenAI) -> None:
    unkept = client.responses.create(model="tiny", input=ASKED, store=False)
    for name in (unkept.id, "resp_other"):
        with pytest.raises(openai.BadRequestError, match=f"{name}.*: send the whole conversation"):
            client.responses.create(model="tiny", input="x", previous_response_id=name)
    reference: Any = {"type": "item_reference", "id": unkept.output[0].id}
    with pytest.raises(openai.NotFoundError, match=r"input\.0 names 'rs_.*: send the item itself"):
        client.responses.create(model="tiny", input=[reference])


def test_an_item_is_referred_to_once(http: httpx.Client) -> None:
    item = asked(http, input=ASKED)["output"][0]
    reference = {"type": "item_reference", "id": item["id"]}
    answer = http.post(PATH, json={"input": [reference, {"id": item["id"]}]})
    assert answer.status_code == 400
    assert "a second time: leave it out" in answer.json()["error"]["message"]


def follow(store: ResponseStore, name: str) -> int | None:
    """How many items go before an answer to a response; None where it is forgotten."""
    try:
        return len(store.said(ResponsesBody(input=[], previous_response_id=name)))
    except ApiError:
        return None


def test_the_store_forgets_the_oldest_by_number_and_by_size() -> None:
    items = [MessageItem(role="user", content="x" * 1000)]
    few = ResponseStore(longest=100_000, responses=3)
    small = ResponseStore(longest=100_000, size=3500)
    for number in range(5):
        few.keep(items, f"r{number}", [])
        small.keep(items, f"r{number}", [])
    for store in (few, small):
        assert [follow(store, f"r{n}") for n in range(5)] == [None, None, 1, 1, 1]
    small.keep([MessageItem(role="user", content="x" * 4000)], "large", [])
    assert [follow(small, name) for name in ("r4", "large")] == [None, None]


def test_a_conversation_may_be_as_long_as_a_request() -> None:
    store = ResponseStore(longest=3000)
    store.keep([MessageItem(role="user", content="x" * 2000)], "r", [])
    assert len(store.said(ResponsesBody(input="x" * 900, previous_response_id="r"))) == 2
    with pytest.raises(ApiError, match="longer than 3000 bytes") as refused:
        store.said(ResponsesBody(input="x" * 1000, previous_response_id="r"))
    assert refused.value.status == 413


# --- fields -------------------------------------------------------------------------------


def test_what_changes_no_reply_is_taken(http: httpx.Client) -> None:
    plain = asked(http, input=ASKED)
    ignored = {
        "model": "tiny",
        "user": "u",
        "service_tier": "auto",
        "safety_identifier": "s",
        "prompt_cache_key": "k",
        "truncation": "auto",
        "include": ["reasoning.encrypted_content"],
        "max_tool_calls": 3,
        "stream_options": {"include_obfuscation": False},
        "client_metadata": {"id": "i"},
        "text": {"verbosity": "low"},
        "reasoning": {"summary": "auto"},
        "tools": [],
        "background": False,
    }
    unset = ("prompt", "conversation", "moderation", "context_management", "top_logprobs")
    answer = asked(http, input=ASKED, **ignored, **dict.fromkeys(unset))
    assert said(answer["output"]) == said(plain["output"])


def test_a_choice_of_tools_is_heeded(http: httpx.Client) -> None:
    settings: Any = {"input": ASKED, "tools": TOOLS, "max_output_tokens": 150}

    def names(choice: Any) -> list[str]:
        output = asked(http, **settings, tool_choice=choice)["output"]
        return [item["name"] for item in output if item["type"] == "function_call"]

    other = {"type": "function", "name": OTHER}
    assert names("none") == []
    assert set(names("required")) <= {tool["name"] for tool in TOOLS}
    assert names("required")
    assert names(other) == [OTHER]
    assert set(names({"type": "allowed_tools", "mode": "required", "tools": [other]})) == {OTHER}


def test_logprobs_are_those_of_the_text(http: httpx.Client) -> None:
    wanted = {"include": ["message.output_text.logprobs"], "top_logprobs": 2}
    body = {"input": ASKED, "max_output_tokens": 30, **wanted}
    part = asked(http, **body)["output"][-1]["content"][0]
    assert "".join(entry["token"] for entry in part["logprobs"]).lstrip("\n") == part["text"]
    assert all(len(entry["top_logprobs"]) == 2 for entry in part["logprobs"])
    deltas = [e for e in streamed(http, **body) if e["type"] == "response.output_text.delta"]
    assert [entry for e in deltas for entry in e["logprobs"]] == part["logprobs"]


def test_origins_are_told_when_asked(http: httpx.Client) -> None:
    assert "mlxfill" not in asked(http, input=ASKED)
    body = {"input": ASKED, "instructions": BRIEF, "tools": TOOLS, "mlxfill": {"origins": True}}
    whole = asked(http, **body)
    tokens = whole["mlxfill"]["tokens"]
    assert {"sampled", "template", "schema"} <= {token["origin"] for token in tokens}
    assert whole["usage"]["fill"]["injected"] > 0
    assert streamed(http, **body)[-1]["response"]["mlxfill"]["tokens"] == tokens


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"input": []}, "input is empty"),
    ({"input": None}, "input"),
    ({"input": [7]}, "input.0: items must be message, reasoning, function_call,"),
    ({"input": [{"type": "web_search_call", "id": "w"}]}, "by their type, not {'type': 'web_searc"),
    ({"input": [{"type": ["message"]}]}, "input.0: items must be"),
    ({"input": [{"role": "wizard", "content": "x"}]}, "input.0.role"),
    ({"input": [{"role": "user"}]}, "input.0.content is missing"),
    ({"input": [{"type": "function_call", "name": "f"}]}, "input.0.call_id is missing"),
    (
        {"input": [{"role": "user", "content": [{"type": "input_image"}]}]},
        "input.0.content.0.type: only text is understood here, not 'input_image'",
    ),
    (
        {"tools": [{"type": "web_search"}]},
        "tools.0.type: only functions can be called here, not 'web_search'",
    ),
    ({"tools": [{"type": "custom", "name": "c"}]}, "not 'custom'"),
    ({"tools": [{"type": "function"}]}, "tools.0.name is missing"),
    ({"tool_choice": {"type": "mcp", "name": "m"}}, "tool_choice.type: only functions"),
    ({"tool_choice": "required"}, "tool_choice needs tools"),
    ({"tools": TOOLS, "tool_choice": {"type": "function", "name": "f"}}, "names 'f', which is not"),
    ({"text": {"format": {"type": "yaml"}}}, 'text.format must be {"type": "text"}, '),
    (
        {"text": {"format": {"type": "yaml"}}},
        ', {"type": "json_schema", "name": ..., "schema": ...}, {"regex": ...} or ',
    ),
    (
        {"text": {"format": {"type": "json_schema", "name": "n"}}},
        "text.format.schema must be a JSON schema, not None",
    ),
    ({"max_output_tokens": "many"}, "max_output_tokens"),
    ({"max_tokens": 2**31}, "max_tokens: input should be less than or equal to 2147483647"),
    (
        {"max_output_token": 3},
        "unknown field 'max_output_token'; did you mean 'max_output_tokens'?",
    ),
    ({"mlxfill": {"audit": True}}, "mlxfill.audit is not allowed here"),
    ({"background": True}, "background is not supported here: leave it out"),
    ({"conversation": "conv_1"}, "conversation is not supported here: send the whole"),
    ({"prompt": {"id": "p"}}, "prompt is not supported here: give instructions and input"),
    ({"top_k": 10**9}, "top_k must be below the vocabulary size"),
]


@pytest.mark.parametrize(("change", "message"), WRONG, ids=lambda v: str(v)[:40])
def test_a_wrong_value_is_named(http: httpx.Client, change: dict[str, Any], message: str) -> None:
    answer = http.post(PATH, json={"input": ASKED, **change})
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert message in error["message"]
    assert "\n" not in error["message"]
    assert len(error["message"]) < 400


def test_a_bound_is_told_by_the_fields_name(served: Any) -> None:
    with served.http() as http:
        body = {"input": ASKED, "max_output_tokens": 2, "min_tokens": 3}
        answer = http.post(PATH, json=body)
    assert answer.status_code == 400
    said = "min_tokens is 3 and max_output_tokens 2"
    assert answer.json()["error"]["message"].startswith(said)
