"""Errors in the shape that clients of a path know."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse

from mlxfill_serve.answers import event

if TYPE_CHECKING:
    from mlxfill_serve.errors import ApiError

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


def error_body(error: ApiError) -> dict[str, Any]:
    """Anthropic's error object."""
    kind = _TYPES.get(error.status, "invalid_request_error" if error.status < 500 else "api_error")  # noqa: PLR2004
    return {"type": "error", "error": {"type": kind, "message": error.message}}


def error_event(error: ApiError) -> bytes:
    """The same in a stream."""
    return event(error_body(error), "error")


def error_response(error: ApiError) -> JSONResponse:
    """The whole answer."""
    return JSONResponse(error_body(error), error.status, error.headers)
