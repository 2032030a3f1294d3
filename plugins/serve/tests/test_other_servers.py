"""Fields that clients of other servers send, and what becomes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import httpx

CHAT, TEXT, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"
HELLO = [{"role": "user", "content": "Where is send_key used?"}]
BODIES: dict[str, dict[str, Any]] = {
    CHAT: {"messages": HELLO, "max_tokens": 6},
    TEXT: {"prompt": "def load(path):\n    return", "max_tokens": 6},
    RESPONSES: {"input": HELLO, "max_output_tokens": 6},
}
PATHS = pytest.mark.parametrize("path", BODIES)
IGNORED = "X-Mlxfill-Ignored"


def said(answer: httpx.Response) -> Any:
    """What the model said, without what differs from request to request."""
    assert answer.status_code == 200, answer.text
    told = answer.json()
    if "output" in told:
        return [item.get("content") for item in told["output"]]
    return [(choice.get("message"), choice.get("text")) for choice in told["choices"]]


def refused(answer: httpx.Response) -> dict[str, Any]:
    assert answer.status_code == 400, answer.text
    error: dict[str, Any] = answer.json()["error"]
    assert len(error["message"]) < 400
    return error


HARMLESS = {
    "chat_id": "a",
    "session_id": "b",
    "request_id": "c",
    "cache_prompt": False,
    "keep_alive": "5m",
    "id_slot": 3,
    "user": "d",
    "safety_identifier": "e",
    "prompt_cache_key": "f",
    "litellm_metadata": {"a": 1},
    "speculative.n_max": 4,
}
NEUTRAL: dict[str, Any] = {
    "typical_p": 1.0,
    "tfs_z": 1.0,
    "mirostat": 0,
    "dry_multiplier": 0.0,
    "use_beam_search": False,
    "skip_special_tokens": True,
    "add_generation_prompt": True,
    "continue_final_message": False,
    "n_probs": 0,
    "guided_json": None,
    "structured_outputs": None,
    "images": [],
    "chat_template": None,
}
TOLD = {
    "typical_p": 0.9,
    "tfs_z": 0.5,
    "mirostat": 2,
    "mirostat_tau": 5.0,
    "dry_multiplier": 0.8,
    "dry_allowed_length": 2,
    "num_ctx": 8192,
    "provider": {"order": ["a"]},
    "transforms": ["middle-out"],
    "route": "fallback",
    "models": ["a", "b"],
    "plugins": [{"id": "web"}],
    "priority": 1,
    "skip_special_tokens": False,
    "truncate_prompt_tokens": 100,
    "use_beam_search": True,
    "return_token_ids": True,
}


@PATHS
def test_what_changes_no_reply_is_left_out_in_silence(http: httpx.Client, path: str) -> None:
    plain = http.post(path, json=BODIES[path])
    for more in (HARMLESS, NEUTRAL, {"options": {**HARMLESS, **NEUTRAL}}):
        answer = http.post(path, json={**BODIES[path], **more})
        assert said(answer) == said(plain)
        assert IGNORED not in answer.headers


@PATHS
@pytest.mark.parametrize("stream", [False, True])
def test_what_is_ignored_stands_in_a_header(http: httpx.Client, path: str, *, stream: bool) -> None:
    answer = http.post(path, json={**BODIES[path], **TOLD, "stream": stream})
    assert answer.status_code == 200, answer.text
    assert answer.headers[IGNORED].split(", ") == list(TOLD)


def test_the_operator_is_told_of_each_once(
    http: httpx.Client, capsys: pytest.CaptureFixture[str]
) -> None:
    message = {**HELLO[0], "mood": "glad"}
    for _ in range(2):
        http.post(CHAT, json={**BODIES[CHAT], "top_a": 0.3, "messages": [message]})
    lines = capsys.readouterr().err.splitlines()
    for name in ("top_a", "messages.N.mood"):
        told = f"a request holds {name}, which is ignored (strict in [plugins.serve])"
        assert lines.count(told) == 1


ALIKE: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"n_predict": 3}, {"max_tokens": 3}),
    ({"max_new_tokens": 3}, {"max_tokens": 3}),
    ({"max_output_tokens": 3}, {"max_tokens": 3}),
    ({"options": {"num_predict": 3}}, {"max_tokens": 3}),
    ({"extra_body": {"max_completion_tokens": 3}}, {"max_tokens": 3}),
    ({"max_tokens": 3, "max_completion_tokens": 3, "n_predict": 3}, {"max_tokens": 3}),
    ({"max_tokens": None, "n_predict": 3}, {"max_tokens": 3}),
    ({"temp": 1.5, "random_seed": 3}, {"temperature": 1.5, "seed": 3}),
    ({"repeat_penalty": 1.8}, {"repetition_penalty": 1.8}),
    (
        {"repeat_penalty": 1.8, "repeat_last_n": -1},
        {"repetition_penalty": 1.8, "repetition_context_size": 2**31 - 1},
    ),
    ({"do_sample": False}, {"temperature": 0}),
    ({"stop_sequences": ["e"]}, {"stop": ["e"]}),
    ({"options": {"stop": ["e"], "temperature": 0}}, {"stop": ["e"], "temperature": 0}),
    ({"guided_regex": "[ab]{3}"}, {"response_format": {"regex": "[ab]{3}"}}),
    ({"regex": "[ab]{3}"}, {"response_format": {"regex": "[ab]{3}"}}),
    ({"structured_outputs": {"regex": "[ab]{3}"}}, {"response_format": {"regex": "[ab]{3}"}}),
    (
        {"response_format": {"type": "regex", "value": "[ab]{3}"}},
        {"response_format": {"regex": "[ab]{3}"}},
    ),
    ({"grammar": 'start: "yes"'}, {"response_format": {"lark": 'start: "yes"'}}),
    ({"guided_grammar": 'start: "yes"'}, {"response_format": {"lark": 'start: "yes"'}}),
    ({"guided_json_object": True}, {"response_format": {"type": "json_object"}}),
    ({"format": "json"}, {"response_format": {"type": "json_object"}}),
]


@pytest.mark.parametrize("path", [CHAT, TEXT])
@pytest.mark.parametrize(("theirs", "ours"), ALIKE, ids=lambda v: str(v)[:50])
def test_another_word_for_a_field_means_the_same(
    http: httpx.Client, path: str, theirs: dict[str, Any], ours: dict[str, Any]
) -> None:
    body = {key: value for key, value in BODIES[path].items() if key != "max_tokens"}
    short = {} if "max_tokens" in ours else {"max_tokens": 6}
    answer = http.post(path, json={**body, **short, **theirs})
    assert said(answer) == said(http.post(path, json={**body, **short, **ours}))
    assert IGNORED not in answer.headers


SCHEMA = {
    "type": "object",
    "properties": {"a": {"enum": [1]}},
    "required": ["a"],
    "additionalProperties": False,
}
HOLDING: list[dict[str, Any]] = [
    {"guided_json": SCHEMA},
    {"guided_json": '{"enum": [{"a": 1}]}'},
    {"json_schema": SCHEMA},
    {"json_schema": {"name": "x", "schema": SCHEMA}},
    {"format": SCHEMA},
    {"structured_outputs": {"json": SCHEMA, "regex": None}},
    {"extra_body": {"guided_json": SCHEMA}},
    {"response_format": {"type": "json_object", "schema": SCHEMA}},
    {"response_format": {"type": "json_schema", "schema": SCHEMA}},
    {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}},
    {"response_format": {"type": "json", "value": SCHEMA}},
]


def text(answer: httpx.Response) -> str:
    """The text of the reply."""
    assert answer.status_code == 200, answer.text
    told = answer.json()
    if "output" in told:
        return str(told["output"][-1]["content"][0]["text"])
    (choice,) = told["choices"]
    return str(choice["text"] if "text" in choice else choice["message"]["content"])


def long(path: str) -> dict[str, Any]:
    """The same request with room for a whole reply."""
    return {key: 60 if "max" in key else value for key, value in BODIES[path].items()}


@PATHS
@pytest.mark.parametrize("held", HOLDING, ids=str)
def test_a_schema_holds_the_reply_wherever_it_stands(
    http: httpx.Client, path: str, held: dict[str, Any]
) -> None:
    answer = http.post(path, json={**long(path), **held})
    assert "".join(text(answer).split()) == '{"a":1}'


@PATHS
@pytest.mark.parametrize("one", ['so "it" is', "a\\b\n| c", "日本"])
def test_one_of_several_texts(http: httpx.Client, path: str, one: str) -> None:
    for field in ("guided_choice", "choice"):
        assert text(http.post(path, json={**long(path), field: [one]})) == one
    either = {"structured_outputs": {"choice": [one, "yes", "yesterday"]}}
    assert text(http.post(path, json={**long(path), **either})) in {one, "yes", "yesterday"}


CONTRADICTIONS: list[tuple[dict[str, Any], str, str]] = [
    ({"max_tokens": 3, "n_predict": 4}, "max_tokens", "n_predict"),
    ({"max_tokens": 3, "max_completion_tokens": 4}, "max_tokens", "max_completion_tokens"),
    ({"repeat_penalty": 1.1, "repetition_penalty": 1.2}, "repetition_penalty", "repeat_penalty"),
    ({"options": {"seed": 4}, "seed": 5}, "seed", "options.seed"),
    ({"guided_regex": "a", "guided_choice": ["a"]}, "guided_regex", "guided_choice"),
    ({"guided_regex": "a", "response_format": {"regex": "b"}}, "response_format", "guided_regex"),
    ({"do_sample": False, "temperature": 0.5}, "temperature", "do_sample"),
]


@pytest.mark.parametrize(("body", "one", "other"), CONTRADICTIONS, ids=lambda v: str(v)[:50])
def test_fields_that_contradict_each_other_are_both_named(
    http: httpx.Client, body: dict[str, Any], one: str, other: str
) -> None:
    for path in (CHAT, TEXT):
        base = {key: value for key, value in BODIES[path].items() if key != "max_tokens"}
        error = refused(http.post(path, json={**base, **body}))
        assert f"{one} and {other} contradict each other" in error["message"]


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"enable_thinking": True, "chat_template_kwargs": {"enable_thinking": False}}, "contra"),
        ({"thinking": {"type": "disabled"}, "enable_thinking": True}, "contradict"),
        ({"temprature": 1}, "did you mean 'temperature'?"),
        ({"enable_thinkng": True}, "did you mean 'enable_thinking'?"),
        ({"options": {"temprature": 1}}, "'options.temprature'"),
        ({"options": 3}, "options must be an object"),
        ({"n_predict": "many"}, "n_predict: "),
        ({"n_predict": True}, "n_predict: "),
        ({"repeat_penalty": -1}, "repeat_penalty"),
        ({"options": {"top_p": 2}}, "options.top_p"),
        ({"guided_regex": 3}, "guided_regex must be"),
        ({"guided_choice": ["a", 1]}, "guided_choice must be"),
        ({"guided_json": "{"}, "guided_json must be a JSON schema"),
        ({"guided_json": {"required": "a"}}, "no JSON schema"),
        ({"grammar": 'root ::= "yes"'}, "grammar must be a Lark grammar"),
        ({"response_format": {"type": "grammar", "grammar": 'root ::= "a"'}}, "Lark grammar"),
        ({"structured_outputs": {"regex": "a", "json": SCHEMA}}, "must be one of"),
        ({"structured_outputs": {"structural_tag": "a"}}, "structured_outputs.structural_tag"),
        ({"chat_template": "{{ 1 }}"}, "chat_template is not supported here: a prompt is made"),
        ({"options": {"template": "{{ 1 }}"}}, "options.template is not supported here"),
        ({"continue_final_message": True}, "continue_final_message is not supported here"),
        ({"add_generation_prompt": False}, "add_generation_prompt is not supported here"),
        ({"bad_words": ["a"]}, "bad_words is not supported here: give logit_bias"),
        ({"allowed_token_ids": [1]}, "allowed_token_ids is not supported here"),
        ({"guided_whitespace_pattern": " "}, "guided_whitespace_pattern is not supported"),
        ({"functions": [{"name": "f"}]}, "functions is not supported here: give tools"),
        ({"messages": [{**HELLO[0], "images": ["a"]}]}, "messages.0.images is not supported"),
        ({"messages": [*HELLO, {"role": "assistant", "content": "a", "prefix": True}]}, "prefix"),
        ({"thinking": {"type": "so"}}, "thinking.type must be"),
        ({"thinking": 3}, "thinking must be"),
        ({"do_sample": "no"}, "do_sample must be"),
        ({"n_probs": True}, "n_probs must be"),
        ({"n_probs": 50}, "n_probs: "),
        ({"min_tokens": 3, "max_tokens": 2}, "min_tokens is 3 and max_tokens 2"),
        ({"min_tokens": -1}, "min_tokens"),
        ({"min_tokens": 2, "guided_regex": "a"}, "min_tokens cannot be had"),
        ({"ignore_eos": True, "guided_regex": "a"}, "ignore_eos cannot be had"),
        ({"stop_token_ids": [10**9]}, "stop_token_ids must be below the vocabulary size"),
        ({"stop_token_ids": "a"}, "stop_token_ids"),
    ],
    ids=lambda v: str(v)[:60],
)
def test_what_cannot_be_left_out_is_an_error(
    http: httpx.Client, body: dict[str, Any], told: str
) -> None:
    base = {"messages": HELLO} if "n_predict" in body else BODIES[CHAT]
    assert told in refused(http.post(CHAT, json={**base, **body}))["message"]


def thoughts(http: httpx.Client, **body: Any) -> str | None:
    told = http.post(CHAT, json={**BODIES[CHAT], "max_tokens": 60, **body})
    assert told.status_code == 200, told.text
    message = told.json()["choices"][0]["message"]
    found: str | None = message.get("reasoning_content")
    return found


@pytest.mark.parametrize(
    "body",
    [
        {"enable_thinking": False},
        {"thinking": False},
        {"think": False},
        {"thinking": {"type": "disabled"}},
        {"reasoning": {"enabled": False}},
        {"reasoning": {"effort": "none"}},
        {"chat_template_kwargs": {"enable_thinking": False}},
        {"chat_template_args": {"enable_thinking": False}},
        {"reasoning_effort": "none"},
        {"extra_body": {"chat_template_kwargs": {"enable_thinking": False}}},
    ],
    ids=str,
)
def test_every_switch_for_thinking_reaches_the_template(
    served: Any, http: httpx.Client, body: dict[str, Any]
) -> None:
    prompts = [
        http.post(CHAT, json={**BODIES[CHAT], **more}).json()["usage"]["prompt_tokens"]
        for more in ({"chat_template_kwargs": {"enable_thinking": False}}, body, {})
    ]
    assert prompts[0] == prompts[1]
    read = "enable_thinking" in served.worker.engine.tokenizer.chat_template
    assert (prompts[0] != prompts[2]) == read


@pytest.mark.parametrize(
    "body", [{"include_reasoning": False}, {"reasoning": {"exclude": True}}], ids=str
)
def test_thoughts_can_be_left_out_of_an_answer(http: httpx.Client, body: dict[str, Any]) -> None:
    assert thoughts(http)
    assert thoughts(http, **body) is None
    lines = http.post(CHAT, json={**BODIES[CHAT], "max_tokens": 60, "stream": True, **body}).text
    assert "reasoning_content" not in lines


def test_a_budget_that_nobody_keeps_is_told(http: httpx.Client) -> None:
    body = {"thinking": {"type": "enabled", "budget_tokens": 100}}
    answer = http.post(CHAT, json={**BODIES[CHAT], **body})
    assert answer.headers[IGNORED] == "thinking.budget_tokens"


# --- where a reply ends -------------------------------------------------------------------


def ids_of(http: httpx.Client, **body: Any) -> list[int]:
    asked = {**BODIES[TEXT], "mlxfill": {"origins": True}, **body}
    answer = http.post(TEXT, json=asked)
    assert answer.status_code == 200, answer.text
    tokens = answer.json()["choices"][0]["mlxfill"]["tokens"]
    return [token["token"] for token in tokens if token["token"] is not None]


def test_an_id_may_end_a_reply(http: httpx.Client) -> None:
    drawn: dict[str, Any] = {"max_tokens": 20, "temperature": 2.0, "seed": 1}
    whole = ids_of(http, **drawn)
    at = next(n for n, token in enumerate(whole) if n > 2 and token not in whole[:n])
    ending = {**drawn, "stop_token_ids": [whole[at]]}
    answer = http.post(TEXT, json={**BODIES[TEXT], **ending}).json()
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert ids_of(http, **ending) == whole[:at]
    for least in (at, at + 1, 20):
        held = ids_of(http, **ending, min_tokens=least)
        assert len(held) >= least
        assert whole[at] not in held[:least]
        assert held[:at] == whole[:at]


def test_a_reply_may_go_on_where_the_model_would_end(served: Any, http: httpx.Client) -> None:
    ends = {str(token): 100.0 for token in served.worker.engine.tokenizer.eos_token_ids}
    assert ids_of(http, logit_bias=ends) == []
    assert len(ids_of(http, logit_bias=ends, ignore_eos=True)) == 6
    assert len(ids_of(http, logit_bias=ends, min_tokens=4)) == 4


# --- strict -------------------------------------------------------------------------------


def test_a_strict_server_refuses_what_others_know(serve_tiny: Any) -> None:
    with serve_tiny(strict=True) as served, served.http() as http:
        for more, hint in (
            ({"n_predict": 3}, "'n_predict'; did you mean 'max_tokens'?"),
            ({"typical_p": 0.5}, "unknown field 'typical_p'"),
            ({"chat_id": "a"}, "unknown field 'chat_id'"),
            ({"options": {"seed": 3}}, "unknown field 'options'"),
        ):
            for path in (CHAT, TEXT):
                body = {**BODIES[path], **more}
                assert hint in refused(http.post(path, json=body))["message"]
        known = {"max_completion_tokens": 6, "functions": None, "stop_token_ids": [3]}
        assert http.post(CHAT, json={"messages": HELLO, **known}).status_code == 200


# --- seeds and thoughts of earlier turns --------------------------------------------------


@PATHS
def test_a_seed_of_minus_one_is_drawn(http: httpx.Client, path: str) -> None:
    seeds = {
        http.post(path, json={**BODIES[path], "seed": -1}).json()["usage"]["seed"] for _ in range(4)
    }
    assert len(seeds) == 4
    assert all(0 <= seed < 2**53 for seed in seeds)


@PATHS
@pytest.mark.parametrize("seed", [0, -2, 2**63 - 1, -(2**63)])
def test_every_other_seed_fixes_the_reply(http: httpx.Client, path: str, seed: int) -> None:
    body = {**BODIES[path], "temperature": 2.0, "seed": seed}
    told = [http.post(path, json=body) for _ in range(2)]
    assert said(told[0]) == said(told[1])


@PATHS
@pytest.mark.parametrize("seed", [2**63, -(2**63) - 1, 10**30, 1.0, 1.5, True, "7"])
def test_what_is_no_seed_is_refused(http: httpx.Client, path: str, seed: object) -> None:
    error = refused(http.post(path, json={**BODIES[path], "seed": seed}))
    assert error["param"] == "seed"


@pytest.mark.parametrize(
    "thought",
    [
        {"reasoning": "because of that"},
        {"thinking": "because of that"},
        {"reasoning_details": [{"type": "reasoning.text", "text": "because of that"}]},
        {"thinking_blocks": [{"type": "thinking", "thinking": "because of that"}]},
    ],
    ids=str,
)
def test_thoughts_of_an_earlier_turn_are_not_lost(
    http: httpx.Client, thought: dict[str, Any]
) -> None:
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    after = {"role": "tool", "content": "so", "tool_call_id": "a"}

    def tokens(**thoughts: Any) -> int:
        reply = {"role": "assistant", "content": None, "tool_calls": [call], **thoughts}
        answer = http.post(CHAT, json={**BODIES[CHAT], "messages": [*HELLO, reply, after]})
        assert answer.status_code == 200, answer.text
        count: int = answer.json()["usage"]["prompt_tokens"]
        return count

    assert tokens(**thought) == tokens(reasoning_content="because of that") > tokens()


def test_thoughts_that_differ_are_named(http: httpx.Client) -> None:
    reply = {"role": "assistant", "content": "a", "reasoning": "b", "reasoning_content": "c"}
    error = refused(http.post(CHAT, json={**BODIES[CHAT], "messages": [*HELLO, reply, *HELLO]}))
    assert "message 1: reasoning_content and reasoning differ" in error["message"]
