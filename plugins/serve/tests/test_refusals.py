"""What cannot be answered gets the right status and one clear line in OpenAI's error object."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import httpx

CHAT, TEXT, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"
HELLO = [{"role": "user", "content": "hi"}]
SEARCH = {"type": "function", "function": {"name": "search"}}
LIST_OF_WHAT = {"type": "object", "properties": {"q": {"type": "array", "items": {"type": "txt"}}}}
MISTYPED = {"type": "function", "function": {"name": "search", "parameters": LIST_OF_WHAT}}


def refused(response: httpx.Response, status: int) -> dict[str, Any]:
    """The error object of a refusal."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    (key,) = response.json()
    error: dict[str, Any] = response.json()[key]
    assert key == "error"
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"]
    assert "\n" not in error["message"]
    assert len(error["message"]) < 400
    assert "Traceback" not in error["message"]
    return error


WRONG: list[tuple[dict[str, Any], str, str | None]] = [
    ({"messages": None}, "messages", "messages"),
    ({"messages": []}, "messages is empty", "messages"),
    ({"messages": "hi"}, "messages", "messages"),
    ({"messages": [{"role": "wizard", "content": "hi"}]}, "'wizard'", "messages.0.role"),
    ({"messages": [{"content": "hi"}]}, "messages.0.role is missing", "messages.0.role"),
    ({"messages": [{"role": "user", "content": 7}]}, "messages.0.content", "messages.0.content"),
    ({"temperature": -1}, "temperature", "temperature"),
    ({"temperature": "hot"}, "'hot'", "temperature"),
    ({"temperature": True}, "temperature", "temperature"),
    ({"top_p": 1.5}, "top_p", "top_p"),
    ({"top_k": -1}, "top_k", "top_k"),
    ({"top_k": 10**9}, "top_k must be below the vocabulary size", "top_k"),
    ({"n": 0}, "n:", "n"),
    ({"n": 10**30}, "n must be 1 to 8", "n"),
    ({"n": 1.5}, "n:", "n"),
    ({"max_tokens": -2}, "max_tokens", "max_tokens"),
    ({"max_tokens": 10**40}, "max_tokens: ", "max_tokens"),
    ({"max_completion_tokens": "many"}, "max_completion_tokens", "max_completion_tokens"),
    ({"stop": [""]}, "stop", "stop"),
    ({"stop": ""}, "stop", "stop"),
    ({"stop": ["x"] * 65}, "64 texts at most, not 65", "stop"),
    ({"stop": 3}, "stop", "stop"),
    ({"logit_bias": {"x": 1}}, "logit_bias", "logit_bias"),
    ({"logit_bias": {"99999999": 1}}, "vocabulary", "logit_bias"),
    ({"logit_bias": [1]}, "logit_bias", "logit_bias"),
    ({"top_logprobs": 21, "logprobs": True}, "top_logprobs", "top_logprobs"),
    ({"stream": "yes"}, "stream", "stream"),
    ({"repetition_penalty": -1}, "repetition_penalty", "repetition_penalty"),
    ({"repetition_context_size": 0}, "repetition_context_size", "repetition_context_size"),
    ({"repetition_context_size": 10**15}, "from 1 to 2147483647", "repetition_context_size"),
    ({"temprature": 1}, "unknown field 'temprature'; did you mean 'temperature'?", "temprature"),
    ({"x" * 10_000: 1}, "unknown field", None),
    (
        {"mlxfill": {"orgins": True}},
        "unknown field 'mlxfill.orgins'; did you mean 'mlxfill.origins'?",
        "mlxfill.orgins",
    ),
    (
        {"mlxfill": {"plugins": ["spec-ngrm"]}},
        "'spec-ngrm', which is not on; did you mean 'spec-ngram'?; on and able to propose are:",
        "mlxfill.plugins",
    ),
    ({"mlxfill": {"session": ""}}, "mlxfill.session", "mlxfill.session"),
    ({"draft_model": "../x"}, "draft_model", "draft_model"),
    ({"adapters": "/etc/passwd"}, "no adapter '/etc/passwd' is mounted", "adapters"),
    ({"role_mapping": {"user": "U: "}}, "role_mapping", "role_mapping"),
    ({"tool_choice": "auto", "tools": [SEARCH, SEARCH]}, "two tools are named", "tools"),
    ({"tool_choice": "required"}, "tool_choice needs tools", "tool_choice"),
    (
        {"tool_choice": {"type": "function", "function": {"name": "f"}}},
        "tool_choice needs tools",
        "tool_choice",
    ),
    ({"tools": [{"type": "function"}]}, "tools.0.function is missing", "tools.0.function"),
    ({"tools": [{"type": "retrieval", "function": {"name": "f"}}]}, "tools.0", "tools.0.type"),
    ({"tools": [{"type": "function", "function": {"name": ""}}]}, "tools.0", None),
    ({"tools": [{"type": "function", "function": {"name": "n" * 10_000}}]}, "tools.0", None),
    (
        {"tools": [{"type": "function", "function": {"name": "f", "parameters": "none"}}]},
        "tools.0.function.parameters",
        "tools.0.function.parameters",
    ),
    ({"response_format": {"type": "yaml"}}, "response_format", "response_format"),
    ({"response_format": {"type": ["text"]}}, "response_format must be", "response_format"),
    (
        {"response_format": {"type": "json_schema"}},
        "response_format.json_schema.schema must be a JSON schema, not None",
        "response_format.json_schema.schema",
    ),
    ({"response_format": {"regex": "a+"}, "tools": [SEARCH]}, "beside tools", "response_format"),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"schema": {"required": "a"}}}},
        'no JSON schema: required: "a" is not of type "array"',
        None,
    ),
    ({"tools": [MISTYPED], "tool_choice": "required"}, "properties.q.items.type: must be", None),
    ({"chat_template_kwargs": {"chat_template": "{{ 1 }}"}}, "'chat_template'", None),
    ({"chat_template_kwargs": {"tokenize": True}}, "'tokenize'", None),
    ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "image_url", None),
]


@pytest.mark.parametrize(("change", "said", "param"), WRONG, ids=lambda v: str(v)[:40])
@pytest.mark.parametrize("stream", [False, True])
def test_a_wrong_value_is_named(
    http: httpx.Client, change: dict[str, Any], said: str, param: str | None, *, stream: bool
) -> None:
    body = {"messages": HELLO, "max_tokens": 1, "stream": stream, **change}
    error = refused(http.post(CHAT, json=body), 400)
    assert said in error["message"]
    if param is not None:
        assert error["param"] == param


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"[]", "must be a JSON object"),
        (b"null", "must be a JSON object"),
        (b"\xff\xfe\x00", "not JSON"),
        (b'{"temperature": NaN, "messages": []}', "NaN is no JSON number"),
        (b'{"temperature": Infinity, "messages": []}', "Infinity"),
        (b'{"temperature": 1e999, "messages": []}', "beyond a double's range"),
        (b'{"seed": ' + b"9" * 5000 + b"}", "not JSON"),
        (b'{"a":' * 100_000 + b"1" + b"}" * 99_000, ""),
        (b"[" * 100_000, "nested deeper than 64"),
        (b'{"metadata": ' + b'{"a":' * 100 + b"1" + b"}" * 101, "nested deeper than 64"),
        (b'{"messages": [{"role": "user", "content": "\\ud800"}]}', "lone surrogate"),
        (b'{"messages": [{"role": "user", "content": "\\u0000"}], "max_tokens": 1}', None),
    ],
)
def test_a_body_that_is_no_request(http: httpx.Client, body: bytes, said: str | None) -> None:
    response = http.post(CHAT, content=body)
    if said is None:
        assert response.status_code == 200
    elif len(body) > 200_000:
        assert refused(response, 413)["code"] == "request_too_large"
    else:
        assert said in refused(response, 400)["message"]


def test_a_long_body_is_refused_whether_it_tells_its_length_or_not(http: httpx.Client) -> None:
    long = json.dumps({"messages": [{"role": "user", "content": "x" * 300_000}]}).encode()
    refused(http.post(CHAT, content=long), 413)
    refused(http.post(CHAT, content=(long[i : i + 1000] for i in range(0, len(long), 1000))), 413)


def test_a_prompt_beyond_the_context_is_told_so(http: httpx.Client) -> None:
    error = refused(http.post(TEXT, json={"prompt": "a " * 40_000}), 400)
    assert error["code"] == "context_length_exceeded"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "prompt is missing"),
        ({"prompt": []}, "prompt is empty"),
        ({"prompt": ""}, "the prompt is empty"),
        ({"prompt": [[]]}, "the prompt is empty"),
        ({"prompt": [-1]}, "outside the vocabulary"),
        ({"prompt": [10**20]}, "outside the vocabulary"),
        ({"prompt": {"a": 1}}, "prompt"),
        ({"prompt": "a", "suffix": "b"}, "suffix"),
        ({"prompt": "a", "best_of": 3}, "best_of"),
        ({"prompt": "a", "logprobs": -1}, "logprobs"),
        ({"prompt": ["a"] * 1000}, "asks for 1000 replies"),
    ],
)
def test_a_wrong_completion_is_told_why(
    http: httpx.Client, body: dict[str, Any], said: str
) -> None:
    assert said in refused(http.post(TEXT, json=body), 400)["message"]


@pytest.mark.parametrize("name", ["gpt-4", "../../etc/passwd", "tiny:nothing", "x" * 10_000])
def test_an_unknown_model_is_not_found(http: httpx.Client, name: str) -> None:
    for path, body in ((CHAT, {"messages": HELLO}), (TEXT, {"prompt": "a"})):
        error = refused(http.post(path, json={"model": name, **body}), 404)
        assert error["code"] == "model_not_found"


def test_paths_and_methods_that_do_not_exist(http: httpx.Client) -> None:
    for path in ("/v1/embeddings", "/v1/models/other", "/../../etc/passwd", "/page.py"):
        refused(http.get(path), 404)
    refused(http.get(CHAT), 405)
    refused(http.post("/v1/models"), 405)


@pytest.mark.parametrize(
    "template", ["{% for i in range(10**9) %}x{% endfor %}", "{{ ''.__class__.__mro__ }}"]
)
def test_a_template_from_outside_is_never_rendered(http: httpx.Client, template: str) -> None:
    for field in ("chat_template", "template"):
        refused(http.post(CHAT, json={"messages": HELLO, field: template}), 400)
    options = {"chat_template": template}
    refused(http.post(CHAT, json={"messages": HELLO, "chat_template_kwargs": options}), 400)


def test_what_templates_refuse_is_told(http: httpx.Client) -> None:
    options = {"enable_thinking": {"deep": ["x"] * 100}}
    response = http.post(
        CHAT, json={"messages": HELLO, "chat_template_kwargs": options, "max_tokens": 1}
    )
    assert response.status_code in {200, 400}


def test_what_mlx_lm_takes_is_taken(http: httpx.Client) -> None:
    body = {
        "model": "default_model",
        "messages": HELLO,
        "role_mapping": None,
        "stop": None,
        "max_tokens": 2,
        "stream": False,
        "temperature": 0,
        "top_p": 1.0,
        "top_k": 0,
        "min_p": 0.0,
        "repetition_penalty": 0.0,
        "repetition_context_size": 20,
        "presence_penalty": 0.0,
        "presence_context_size": 20,
        "frequency_penalty": 0.0,
        "frequency_context_size": 20,
        "xtc_probability": 0.0,
        "xtc_threshold": 0.1,
        "logit_bias": {"5": -1.0},
        "logprobs": True,
        "top_logprobs": 3,
        "draft_model": "default_model",
        "num_draft_tokens": 3,
        "adapters": None,
        "seed": 1,
        "chat_template_kwargs": {"enable_thinking": False},
    }
    answer = http.post(CHAT, json=body)
    assert answer.status_code == 200, answer.text
    assert answer.json()["usage"]["completion_tokens"] <= 2
    assert http.post("/chat/completions", json=body).json()["choices"] == answer.json()["choices"]


SHARP = '{"enum": [1.00000000000000000001]}'
OBJECT = f'{{"type": "object", "properties": {{"a": {SHARP}}}, "required": ["a"]}}'
TOOL = f'{{"type": "function", "function": {{"name": "f", "parameters": {OBJECT}}}}}'
WRAPPED = f'{{"type": "json_schema", "json_schema": {{"schema": {SHARP}}}}}'


@pytest.mark.parametrize(
    ("path", "more"),
    [
        (CHAT, f'"response_format": {WRAPPED}'),
        (CHAT, f'"response_format": {{"type": "json_object", "schema": {SHARP}}}'),
        (CHAT, f'"guided_json": {json.dumps(SHARP)}'),
        (CHAT, f'"format": {SHARP}'),
        (CHAT, f'"tools": [{TOOL}], "tool_choice": "required"'),
        (RESPONSES, f'"text": {{"format": {{"type": "json_schema", "schema": {SHARP}}}}}'),
    ],
)
def test_a_number_of_a_schema_is_not_rounded(http: httpx.Client, path: str, more: str) -> None:
    said = '[{"role": "user", "content": "Hi"}]'
    body = f'{{"{"messages" if path == CHAT else "input"}": {said}, {more}}}'
    answer = http.post(path, content=body)
    assert answer.status_code == 400, answer.text
    assert "1.00000000000000000001 would be rounded" in answer.json()["error"]["message"]


def test_a_number_with_more_digits_than_a_double_is_one_of_ours(http: httpx.Client) -> None:
    said = '"messages": [{"role": "user", "content": "Hi"}]'
    answer = http.post(CHAT, content=f'{{{said}, "max_tokens": 1, "top_p": 0.{"5" * 30}}}')
    assert answer.status_code == 200, answer.text
