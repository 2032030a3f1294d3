"""Whatever is sent to the Responses API, the server answers, and goes on."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

PATH = "/v1/responses"
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=10,
)
TEXT = st.text(max_size=12)
ID = st.sampled_from(["rs_1", "msg_2", "", "x" * 300])
PART = st.fixed_dictionaries(
    {"type": st.sampled_from(["input_text", "output_text", "text", "refusal", "input_file"])},
    optional={"text": TEXT | JSON, "refusal": TEXT},
)
CONTENT = TEXT | st.lists(PART, max_size=3)
KINDS = [
    "message",
    "reasoning",
    "function_call",
    "function_call_output",
    "item_reference",
    "computer_call",
]
VALUES: dict[str, Any] = {
    "type": st.sampled_from(KINDS),
    "role": st.sampled_from(["user", "assistant", "system", "developer", "tool"]),
    "content": CONTENT,
    "summary": st.lists(PART, max_size=2),
    "call_id": ID,
    "name": TEXT,
    "arguments": st.sampled_from(["{}", '{"a": 1}', "", "{", "[]", '"x"', "null"]) | TEXT,
    "output": CONTENT,
    "id": ID,
}
ITEM = st.fixed_dictionaries({}, optional=VALUES) | JSON
LIKELY_ITEM = st.one_of(
    st.fixed_dictionaries({"role": VALUES["role"], "content": CONTENT}),
    *(
        st.fixed_dictionaries({"type": st.just(kind), **values})
        for kind, values in {
            "reasoning": {"content": st.lists(st.fixed_dictionaries({"text": TEXT}), max_size=2)},
            "function_call": {name: VALUES[name] for name in ("call_id", "name", "arguments")},
            "function_call_output": {name: VALUES[name] for name in ("call_id", "output")},
        }.items()
    ),
)
TOOL = st.fixed_dictionaries(
    {"type": st.just("function"), "name": st.sampled_from(["f", "g", "a.b", "", "é"])},
    optional={
        "parameters": JSON | st.just({"type": "object", "properties": {"a": {"type": "string"}}}),
        "description": TEXT,
        "strict": st.booleans() | st.none(),
    },
)
FIELDS: dict[str, Any] = {
    "instructions": TEXT,
    "previous_response_id": ID,
    "tools": st.lists(TOOL | JSON, max_size=3),
    "tool_choice": st.sampled_from(["auto", "none", "required", "f"])
    | st.fixed_dictionaries({"type": st.just("function"), "name": st.sampled_from(["f", "h"])}),
    "parallel_tool_calls": st.booleans(),
    "temperature": st.floats(-1, 3) | JSON,
    "top_p": st.floats(-1, 2),
    "text": st.fixed_dictionaries(
        {"format": st.fixed_dictionaries({"type": TEXT | st.just("json_schema"), "schema": JSON})}
    ),
    "reasoning": st.fixed_dictionaries({"effort": st.sampled_from(["none", "low", "xyz"]) | JSON}),
    "include": st.lists(st.sampled_from(["message.output_text.logprobs", "x"]), max_size=2),
    "top_logprobs": st.integers(-1, 21),
    "stream": st.booleans(),
    "store": st.booleans(),
    "metadata": JSON,
    "chat_template_kwargs": JSON,
}
ASKED: dict[str, Any] = {
    "input": TEXT | st.lists(LIKELY_ITEM, min_size=1, max_size=5) | st.lists(ITEM, max_size=5),
    "max_output_tokens": st.integers(0, 3),
}
NAMES = st.lists(st.sampled_from(sorted(FIELDS)), max_size=3, unique=True)
BODY = NAMES.flatmap(
    lambda names: st.fixed_dictionaries({**ASKED, **{name: FIELDS[name] for name in names}})
)
THOROUGH = settings(
    max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)


def test_every_body_is_answered(served: Any) -> None:
    answered = dict.fromkeys((200, 400, 404), 0)  # 404: items that were never kept
    with served.http() as http:  # which waits for a minute at most

        @THOROUGH
        @given(BODY | JSON)
        def ask(body: Any) -> None:
            answer = http.post(PATH, json=body)
            assert answer.status_code in answered, answer.text
            assert "response.failed" not in answer.text
            answered[answer.status_code] += 1

        ask()
    assert min(answered[200], answered[400]) > 30  # both sides of what is legal were seen
    assert served.worker.alive
    assert served.idle()
