"""What common clients send beside the plain questions, and how they show what is refused."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

import openai
import pytest

from mlxfill_model_tiny import held_out_asks

if TYPE_CHECKING:
    import httpx

CHAT = "/v1/chat/completions"
HELLO: Any = [{"role": "user", "content": "Where is send_key used?"}]
ASK = held_out_asks(1)[0]
ASKED: Any = {"model": "tiny", "messages": ASK.messages, "max_tokens": 200}
TOOLS: Any = ASK.tools
CALLED, OTHER = ASK.tool, next(t for t in TOOLS if t["function"]["name"] != ASK.tool)


def test_a_client_in_javascript_can_send_back_the_seed_that_was_chosen(
    client: openai.OpenAI,
) -> None:
    settings: Any = {"model": "tiny", "messages": HELLO, "max_tokens": 12, "temperature": 2.0}
    first = client.chat.completions.create(**settings)
    assert first.usage is not None
    read = int(float(first.usage.to_dict()["seed"]))  # as its numbers are
    again = client.chat.completions.create(**settings, seed=read)
    assert again.choices == first.choices


def test_what_changes_no_reply_is_taken(http: httpx.Client) -> None:
    body = {"messages": HELLO, "max_tokens": 8}
    plain = http.post(CHAT, json=body).json()["choices"]
    ignored = {
        "prediction": {"type": "content", "content": "I will search the code."},
        "prompt_cache_options": {"mode": "explicit"},
        "user": "u",
        "metadata": {"a": "b"},
        "store": True,
        "service_tier": "auto",
        "safety_identifier": "s",
        "verbosity": "low",
        "parallel_tool_calls": True,
        "tools": [],
        "tool_choice": "auto",
    }
    unset = ("functions", "function_call", "web_search_options", "audio", "moderation")
    answer = http.post(CHAT, json={**body, **ignored, **dict.fromkeys(unset)})
    assert answer.status_code == 200, answer.text
    assert answer.json()["choices"] == plain


def allowing(mode: str, *names: str) -> Any:
    tools = [{"type": "function", "function": {"name": name}} for name in names]
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}


def test_tools_that_are_not_allowed_are_as_if_not_there(client: openai.OpenAI) -> None:
    alone = client.chat.completions.create(**ASKED, tools=[OTHER])
    choice = allowing("auto", OTHER["function"]["name"])
    narrowed = client.chat.completions.create(**ASKED, tools=TOOLS, tool_choice=choice)
    assert narrowed.usage is not None
    assert alone.usage is not None
    assert narrowed.usage.prompt_tokens == alone.usage.prompt_tokens
    assert narrowed.choices[0].message.content == alone.choices[0].message.content


def test_one_of_the_allowed_tools_may_be_required(client: openai.OpenAI) -> None:
    choice = allowing("required", CALLED)
    answer = client.chat.completions.create(**ASKED, tools=TOOLS, tool_choice=choice)
    (call,) = answer.choices[0].message.tool_calls or []
    assert call.type == "function"
    assert call.function.name == CALLED


def test_allowed_tools_must_be_there(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="names 'nothing', which is not among"):
        client.chat.completions.create(
            **ASKED, tools=TOOLS, tool_choice=allowing("auto", CALLED, "nothing")
        )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"functions": [{"name": "f"}]}, "functions is not supported here: give tools"),
        ({"function_call": "auto"}, "function_call is not supported here: give tool_choice"),
        ({"web_search_options": {}}, "web_search_options is not supported here: leave it out"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
            "messages.0.content.0.type: only text is understood here, not 'image_url'",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_would_change_the_reply_is_refused_with_the_remedy(
    client: openai.OpenAI, change: dict[str, Any], said: str
) -> None:
    settings: Any = {"model": "tiny", "messages": HELLO, **change}
    with pytest.raises(openai.BadRequestError, match=said):
        client.chat.completions.create(**settings)


def test_a_client_of_another_api_is_told_which_there_is(client: openai.OpenAI) -> None:
    said = "POST /v1/embeddings: Not Found; there are: /v1/chat/completions, /v1/responses"
    with pytest.raises(openai.NotFoundError, match=said):
        client.embeddings.create(model="tiny", input="hi")


def test_a_request_whose_time_is_over_is_not_asked_again(serve_tiny: Any) -> None:
    asked: list[Any] = []
    hooks: Any = {"request": [asked.append]}
    heard = openai.DefaultHttpxClient(event_hooks=hooks, trust_env=False)
    with serve_tiny(timeout=100, hang=0, clock=count().__next__) as served, heard:
        client = openai.OpenAI(base_url=f"{served.url}/v1", api_key="none", http_client=heard)
        ends = served.worker.engine.tokenizer.eos_token_ids
        with pytest.raises(openai.InternalServerError, match="the request took longer than"):
            client.chat.completions.create(
                model="tiny",
                messages=HELLO,
                max_tokens=20_000,
                logit_bias={str(token): -1000 for token in ends},
            )
    assert len(asked) == 1
