"""The Messages API through Anthropic's own client, and beside chat completions."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import anthropic
import pytest
from anthropic.types import Message, RawMessageStreamEvent
from pydantic import TypeAdapter

import mlxfill
from mlxfill_model_tiny import held_out_asks
from mlxfill_serve.anthropic.answers import MessageChoice
from mlxfill_serve.jobs import Ended, Token
from mlxfill_serve.reply import ReplyReader

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

PATH, COUNT, CHAT = "/v1/messages", "/v1/messages/count_tokens", "/v1/chat/completions"
MODEL = "claude-sonnet-4-5"
BRIEF = "You are a helpful assistant."
ASKED: Any = [{"role": "user", "content": "Where is send_key used?"}]
ASK = held_out_asks(1)[0]
TOOLS: Any = [
    {
        "name": tool["function"]["name"],
        "description": tool["function"]["description"],
        "input_schema": tool["function"]["parameters"],
    }
    for tool in ASK.tools
]
RESULT = "src/page.py:12: send_key(value)"
EVENT: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)


@pytest.fixture
def claude(served: Any) -> Iterator[anthropic.Anthropic]:
    """Anthropic's client, as its users set it to another server."""
    with anthropic.Anthropic(base_url=served.url, api_key="none", max_retries=0) as client:
        yield client


def asked(http: httpx.Client, **body: Any) -> dict[str, Any]:
    """A message, which is one by Anthropic's types."""
    answer = http.post(PATH, json={"model": MODEL, "max_tokens": 90, "temperature": 0, **body})
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    Message.model_validate(told)
    return told


def streamed(http: httpx.Client, **body: Any) -> list[dict[str, Any]]:
    """The events of a stream, which are some by Anthropic's types."""
    asked = {"model": MODEL, "max_tokens": 90, "temperature": 0, **body, "stream": True}
    answer = http.post(PATH, json=asked)
    assert answer.status_code == 200, answer.text
    events = []
    for block in answer.text.strip().split("\n\n"):
        name, data = block.split("\n")
        told = json.loads(data.removeprefix("data: "))
        assert name == f"event: {told['type']}"
        if told["type"] != "ping":
            EVENT.validate_python(told)
            events.append(told)
    return events


def put_together(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The blocks that events tell of, which must come in their order."""
    blocks: list[dict[str, Any]] = []
    texts: list[str] = []
    for told in events:
        if told["type"] == "content_block_start":
            assert told["index"] == len(blocks)
            blocks.append(told["content_block"])
            texts = []
        elif told["type"] == "content_block_delta":
            assert told["index"] == len(blocks) - 1
            (text,) = (value for key, value in told["delta"].items() if key != "type")
            texts.append(text)
        elif told["type"] == "content_block_stop":
            whole = "".join(texts)
            kind = blocks[-1]["type"]
            if kind == "tool_use":
                blocks[-1]["input"] = json.loads(whole)
            else:
                blocks[-1][kind] = whole
    return blocks


def said(blocks: list[dict[str, Any]]) -> list[Any]:
    """What blocks say, without what is new in each message."""
    return [
        (each["name"], each["input"])
        if each["type"] == "tool_use"
        else (each["type"], each[each["type"]])
        for each in blocks
    ]


def said_in_chat(http: httpx.Client, **body: Any) -> tuple[list[Any], dict[str, Any]]:
    """The same of the reply of a chat completion, and its usage."""
    answer = http.post(CHAT, json={"max_tokens": 90, "temperature": 0, **body})
    assert answer.status_code == 200, answer.text
    told = answer.json()
    message = told["choices"][0]["message"]
    texts = [("thinking", message.get("reasoning_content")), ("text", message["content"])]
    calls = [call["function"] for call in message.get("tool_calls") or ()]
    parts = [
        *(each for each in texts if each[1]),
        *((call["name"], json.loads(call["arguments"])) for call in calls),
    ]
    return parts, told["usage"]


# --- the same as chat ---------------------------------------------------------------------


@pytest.mark.parametrize("tools", [False, True], ids=["text", "tools"])
def test_a_message_says_what_chat_says(http: httpx.Client, *, tools: bool) -> None:
    in_chat: dict[str, Any] = {"tools": ASK.tools} if tools else {}
    here: dict[str, Any] = {"tools": TOOLS} if tools else {}
    system = {"role": "system", "content": BRIEF}
    expected, usage = said_in_chat(http, messages=[system, *ASKED], **in_chat)
    whole = asked(http, messages=ASKED, system=BRIEF, **here)
    assert said(whole["content"]) == expected
    counts = whole["usage"]
    read = counts["input_tokens"] + counts["cache_read_input_tokens"]
    assert (read, counts["output_tokens"]) == (usage["prompt_tokens"], usage["completion_tokens"])
    counted = http.post(COUNT, json={"model": MODEL, "messages": ASKED, "system": BRIEF, **here})
    assert counted.json() == {"input_tokens": read}
    events = streamed(http, messages=ASKED, system=[{"type": "text", "text": BRIEF}], **here)
    assert said(put_together(events)) == expected
    assert [e["type"] for e in (events[0], *events[-2:])] == [
        "message_start",
        "message_delta",
        "message_stop",
    ]
    assert events[0]["message"]["usage"]["input_tokens"] == read
    assert events[-2]["usage"]["output_tokens"] == counts["output_tokens"]


def test_a_turn_with_calls_is_the_prompt_that_chat_makes_of_it(http: httpx.Client) -> None:
    first = asked(http, messages=ASKED, tools=TOOLS)
    assert first["stop_reason"] == "tool_use"
    use = first["content"][-1]
    result = {"type": "tool_result", "tool_use_id": use["id"]}
    turn = {"role": "assistant", "content": first["content"]}
    parts = [{"type": "text", "text": RESULT[:9]}, {"type": "text", "text": RESULT[9:]}]
    function = {"name": use["name"], "arguments": json.dumps(use["input"])}
    thought = next((b["thinking"] for b in first["content"] if b["type"] == "thinking"), None)
    call = {"id": use["id"], "type": "function", "function": function}
    in_chat: Any = [
        *ASKED,
        {"role": "assistant", "content": "", "reasoning_content": thought, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": use["id"], "content": RESULT},
        {"role": "user", "content": "Thank you."},
    ]
    expected, usage = said_in_chat(http, messages=in_chat, tools=ASK.tools)
    for content in (RESULT, parts):
        answer = {**result, "content": content, "cache_control": {"type": "ephemeral"}}
        thanks = {"type": "text", "text": "Thank you."}
        talk = [*ASKED, turn, {"role": "user", "content": [answer, thanks]}]
        second = asked(http, messages=talk, tools=TOOLS)
        assert said(second["content"]) == expected
        counts = second["usage"]
        assert counts["cache_read_input_tokens"] > 0
        read = counts["input_tokens"] + counts["cache_read_input_tokens"]
        assert read == usage["prompt_tokens"]


def test_a_failed_call_is_said_to_have_failed(http: httpx.Client) -> None:
    use = {"type": "tool_use", "id": "a23456789", "name": ASK.tool, "input": {}}
    told = {"type": "tool_result", "tool_use_id": use["id"], "content": "no such file"}

    def counted(block: dict[str, Any]) -> int:
        talk = [
            *ASKED,
            {"role": "assistant", "content": [use]},
            {"role": "user", "content": [block]},
        ]
        answer = http.post(COUNT, json={"messages": talk, "tools": TOOLS})
        return int(answer.json()["input_tokens"])

    spelled = {**told, "content": "Error: no such file"}
    assert counted({**told, "is_error": True}) == counted(spelled) > counted(told)


def test_the_system_may_speak_between_turns(http: httpx.Client) -> None:
    """As agents tell what changed meanwhile."""
    note = {"type": "text", "text": "A file changed."}
    talk = [*ASKED, {"role": "system", "content": [note]}]
    in_chat = [*ASKED, {"role": "system", "content": note["text"]}]
    expected, usage = said_in_chat(http, messages=in_chat)
    told = asked(http, messages=talk)
    assert said(told["content"]) == expected
    counts = told["usage"]
    read = counts["input_tokens"] + counts["cache_read_input_tokens"]
    assert read == usage["prompt_tokens"]


# --- Anthropic's client --------------------------------------------------------------------


def test_the_client_asks_and_is_answered(claude: anthropic.Anthropic) -> None:
    message = claude.messages.create(model=MODEL, max_tokens=40, messages=ASKED, system=BRIEF)
    assert message.role == "assistant"
    assert message.usage.output_tokens > 0
    counted = claude.messages.count_tokens(model=MODEL, messages=ASKED, system=BRIEF)
    usage = message.usage
    assert counted.input_tokens == usage.input_tokens + (usage.cache_read_input_tokens or 0)


def test_the_client_reads_a_stream_of_calls_and_thoughts(claude: anthropic.Anthropic) -> None:
    options: Any = {"model": MODEL, "max_tokens": 200, "messages": ASKED, "tools": TOOLS}
    whole = claude.messages.create(**options)
    with claude.messages.stream(**options) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert final.stop_reason == whole.stop_reason == "tool_use"
    strip = {"content": {"__all__": {"id"}}}
    assert final.model_dump(include={"content"}, exclude=strip) == whole.model_dump(
        include={"content"}, exclude=strip
    )
    assert {block.type for block in final.content} >= {"tool_use"}
    assert text == "".join(block.text for block in final.content if block.type == "text")


@pytest.mark.parametrize(
    ("choice", "called"),
    [
        ({"type": "tool", "name": TOOLS[1]["name"]}, TOOLS[1]["name"]),
        ({"type": "none"}, None),
    ],
    ids=["one", "none"],
)
def test_a_choice_of_tools_holds(http: httpx.Client, choice: Any, called: str | None) -> None:
    told = asked(http, messages=ASKED, tools=TOOLS, tool_choice=choice, max_tokens=200)
    names = [block["name"] for block in told["content"] if block["type"] == "tool_use"]
    assert names == ([called] if called else [])


def test_a_stop_sequence_is_named(http: httpx.Client) -> None:
    whole = asked(http, messages=ASKED, system=BRIEF, thinking={"type": "disabled"})
    text = whole["content"][-1]["text"]
    stop = text.split()[2]
    told = asked(
        http,
        messages=ASKED,
        system=BRIEF,
        thinking={"type": "disabled"},
        stop_sequences=["never said", stop],
    )
    assert (told["stop_reason"], told["stop_sequence"]) == ("stop_sequence", stop)
    assert told["content"][-1]["text"] == text[: text.index(stop)]
    cut = asked(http, messages=ASKED, system=BRIEF, max_tokens=3)
    assert (cut["stop_reason"], cut["stop_sequence"]) == ("max_tokens", None)


def test_a_schema_holds_the_reply(http: httpx.Client) -> None:
    schema = {
        "type": "object",
        "properties": {"ok": {"type": "boolean"}},
        "required": ["ok"],
        "additionalProperties": False,
    }
    config = {"format": {"type": "json_schema", "schema": schema}}
    told = asked(http, messages=ASKED, output_config=config)
    assert isinstance(json.loads(told["content"][-1]["text"])["ok"], bool)


def test_a_key_may_come_as_anthropics_clients_send_it(serve_tiny: Any, load_tiny: Any) -> None:
    with (
        serve_tiny(load_tiny, api_key="secret") as served,
        anthropic.Anthropic(base_url=served.url, api_key="secret", max_retries=0) as client,
        anthropic.Anthropic(base_url=served.url, api_key="wrong", max_retries=0) as stranger,
    ):
        assert client.messages.count_tokens(model=MODEL, messages=ASKED).input_tokens > 0
        with pytest.raises(anthropic.AuthenticationError, match="API key"):
            stranger.messages.count_tokens(model=MODEL, messages=ASKED)


# --- what is refused -----------------------------------------------------------------------

IMAGE = {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}}
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "an image": (
        {"messages": [{"role": "user", "content": [IMAGE]}]},
        "messages.0.content.0: blocks must be .* images, documents and server tools are not",
    ),
    "an image in a result": (
        {
            "messages": [
                {
                    "role": "user",
                    "content": [{"type": "tool_result", "tool_use_id": "a", "content": [IMAGE]}],
                }
            ]
        },
        "only text is understood here",
    ),
    "a server tool": (
        {"tools": [{"type": "web_search_20250305", "name": "web_search", "input_schema": {}}]},
        "server tools are not served, only your own",
    ),
    "servers of tools": ({"mcp_servers": [{"url": "x"}]}, "mcp_servers"),
    "a reply that is begun": (
        {"messages": [*ASKED, {"role": "assistant", "content": "It"}]},
        "messages must end with one of the user",
    ),
    "a call by the user": (
        {
            "messages": [
                {
                    "role": "user",
                    "content": [{"type": "tool_use", "id": "a", "name": "b", "input": {}}],
                }
            ]
        },
        "a message of the user cannot hold a block 'tool_use'",
    ),
    "no tokens": ({"max_tokens": 0}, "max_tokens: input should be greater than or equal to 1"),
    "a choice without a name": (
        {"tools": TOOLS, "tool_choice": {"type": "tool"}},
        "tool_choice.name is missing",
    ),
    "a schema that is none": (
        {"output_config": {"format": {"type": "xml"}}},
        "output_config.format must be",
    ),
    "another model": ({"model": "gpt-9"}, "the model 'gpt-9' does not exist"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_had_is_one_line_in_anthropics_shape(
    claude: anthropic.Anthropic, what: str
) -> None:
    more, line = REFUSED[what]
    body: Any = {"model": MODEL, "max_tokens": 10, "messages": ASKED, **more}
    with pytest.raises(anthropic.APIStatusError, match=line) as caught:
        claude.post(PATH, body=body, cast_to=dict)
    told: Any = caught.value.body
    assert told["type"] == "error"
    status = caught.value.status_code
    kinds = {400: "invalid_request_error", 404: "not_found_error"}
    assert told["error"]["type"] == kinds[status]
    assert "\n" not in told["error"]["message"]


def test_what_nothing_heeds_is_named(http: httpx.Client) -> None:
    body = {"model": MODEL, "max_tokens": 4, "messages": ASKED, "context_management": {"edits": []}}
    answer = http.post(PATH, json=body)
    assert answer.status_code == 200
    assert answer.headers["X-Mlxfill-Ignored"] == "context_management"


# --- a reply that goes wrong ---------------------------------------------------------------


def test_a_call_that_turns_out_to_be_none_is_no_block(plain: mlxfill.Engine) -> None:
    tokenizer = plain.tokenizer
    reader = ReplyReader(tokenizer, ASK.tools, "")
    choice = MessageChoice(reader, tokenizer)
    text = f'<tool_call>\n{{"name": "{ASK.tool}", "arguments": {{"a": }}}}\n</tool_call>'
    events = [e for piece in text for e in choice.feed(Token(piece, 5, "sampled"))]
    events += choice.end(Ended("stop", mlxfill.Stats()))
    assert [block["type"] for block in choice.blocks] == ["text"]
    assert choice.stop_reason == "end_turn"
    starts = [e["index"] for e in events if e["type"] == "content_block_start"]
    stops = [e["index"] for e in events if e["type"] == "content_block_stop"]
    assert starts == stops == list(range(len(starts)))
