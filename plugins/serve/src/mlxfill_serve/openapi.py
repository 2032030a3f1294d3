"""The OpenAPI document of the server."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from pydantic.json_schema import models_json_schema

from mlxfill_serve.anthropic.bodies import CountBody, MessagesBody
from mlxfill_serve.bodies import ChatBody, CompletionBody
from mlxfill_serve.ollama.bodies import ChatAsking, GenerateAsking, ShowAsking
from mlxfill_serve.responses.bodies import ResponsesBody

_BODIES = (
    *(ChatBody, CompletionBody, ResponsesBody),
    *(MessagesBody, CountBody),
    *(ChatAsking, GenerateAsking, ShowAsking),
)
_REF = "#/components/schemas/"
_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}


def document() -> dict[str, Any]:
    """OpenAPI 3.1."""
    _, schemas = models_json_schema(
        [(body, "validation") for body in _BODIES],
        ref_template=f"{_REF}{{model}}",
    )
    return {
        "openapi": "3.1.0",
        "info": {"title": "mlxfill", "version": version("mlxfill-serve")},
        "paths": {
            "/v1/chat/completions": {"post": _generating("chat", "ChatBody")},
            "/v1/responses": {"post": _generating("respond", "ResponsesBody")},
            "/v1/completions": {"post": _generating("complete", "CompletionBody")},
            "/v1/messages": {"post": _generating("message", "MessagesBody")},
            "/v1/messages/count_tokens": {"post": _generating("count_tokens", "CountBody")},
            "/api/chat": {"post": _generating("ollama_chat", "ChatAsking")},
            "/api/generate": {"post": _generating("ollama_generate", "GenerateAsking")},
            "/api/show": {"post": _generating("ollama_show", "ShowAsking")},
            "/api/tags": {"get": _reading("ollama_tags", {})},
            "/api/version": {"get": _reading("ollama_version", {})},
            "/v1/models": {"get": _reading("list_models", {})},
            "/v1/models/{name}": {"get": _reading("one_model", {"parameters": [_NAME]})},
            "/health": {"get": _reading("health", {})},
            "/metrics": {"get": _metrics()},
        },
        "components": {
            "schemas": {**schemas["$defs"], "Error": _ERROR},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"key": []}],
    }


_NAME = {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _refusal() -> dict[str, Any]:
    return {"description": "OpenAI's error object", "content": _json({"$ref": f"{_REF}Error"})}


def _generating(name: str, body: str) -> dict[str, Any]:
    events = {"text/event-stream": {"schema": {"type": "string"}}}
    answer = {"description": "Done", "content": {**_json({"type": "object"}), **events}}
    return {
        "operationId": name,
        "requestBody": {"required": True, "content": _json({"$ref": f"{_REF}{body}"})},
        "responses": {"200": answer, "default": _refusal()},
    }


def _reading(name: str, more: dict[str, Any]) -> dict[str, Any]:
    answer = {"description": "Done", "content": _json({"type": "object"})}
    return {"operationId": name, **more, "responses": {"200": answer, "default": _refusal()}}


def _metrics() -> dict[str, Any]:
    text = {"text/plain": {"schema": {"type": "string"}}}
    answers = {"200": {"description": "Done", "content": text}, "default": _refusal()}
    return {"operationId": "metrics", "responses": answers}
