"""Whatever the OpenAPI document allows, and much that it does not, is answered without a crash."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode

from mlxfill_serve.openapi import document
from patience import AT_ALL

if TYPE_CHECKING:
    import httpx

SHORT = {"max_tokens": 2, "max_completion_tokens": 2, "max_output_tokens": 2, "n": 1}
SCHEMA = schemathesis.openapi.from_dict(document())
FOUND: list[Any] = list(SCHEMA.get_all_operations())
OPERATIONS = {each.ok().label: each.ok() for each in FOUND}

BOUND: dict[str, dict[str, Any]] = {
    "POST /v1/responses": {"max_output_tokens": 2},
    "POST /api/chat": {"options": {"num_predict": 2}},
    "POST /api/generate": {"options": {"num_predict": 2}},
}

quick = settings(
    max_examples=8,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],  # to shrink what a busy machine did shows nothing
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.parametrize("label", OPERATIONS)
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_no_request_makes_the_server_fail(served: Any, label: str, mode: GenerationMode) -> None:
    cases = OPERATIONS[label].as_strategy(generation_mode=mode)

    @quick
    @given(st.data())
    def ask(data: st.DataObject) -> None:
        case = data.draw(cases)
        if isinstance(case.body, dict):  # long replies would show nothing more
            case.body = {k: SHORT[k] if _long(k, v) else v for k, v in case.body.items()}
            case.body = {**BOUND.get(label, {"max_tokens": 2}), **case.body}
        response = case.call(base_url=served.url, timeout=AT_ALL)
        case.validate_response(response, checks=[not_a_server_error])
        assert served.worker.alive

    if mode is GenerationMode.POSITIVE or label.startswith("POST"):
        ask()


def _long(name: str, value: object) -> bool:
    return name in SHORT and isinstance(value, int) and value > SHORT[name]


def test_the_document_names_every_path_and_field(http: httpx.Client) -> None:
    told = http.get("/openapi.json").json()
    assert told == document()
    assert set(told["paths"]) == {
        "/v1/chat/completions",
        "/v1/responses",
        "/v1/messages",
        "/v1/messages/count_tokens",
        "/api/chat",
        "/api/generate",
        "/api/show",
        "/api/tags",
        "/api/version",
        "/v1/completions",
        "/v1/models",
        "/v1/models/{name}",
        "/health",
        "/metrics",
    }
    schemas = told["components"]["schemas"]
    assert {"input", "previous_response_id"} <= set(schemas["ResponsesBody"]["properties"])
    fields = schemas["ChatBody"]["properties"]
    assert {"messages", "tools", "response_format", "adapters", "mlxfill"} <= set(fields)
