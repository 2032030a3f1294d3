"""What a client hears when a request cannot be answered: OpenAI's error object, one line."""

from __future__ import annotations

from typing import Any

from starlette.responses import JSONResponse

from mlxfill import ConfigError, MlxfillError, PluginError
from mlxfill_serve.bodies import FIELDS

_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
    503: "service_unavailable_error",
    504: "timeout_error",
}

_FIELD_OF = {
    "sources": "mlxfill.plugins",
    "schema.json_schema.schema": "response_format.json_schema.schema",
}
"""Options of the engine that have another name in a body."""


class ApiError(Exception):
    """An answer with a status of 400 or more."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        """``param`` names the field at fault, ``code`` the kind of fault, as OpenAI does."""
        super().__init__(message)
        self.status, self.message, self.param, self.code = status, message, param, code
        self.headers = headers or {}

    def body(self) -> dict[str, Any]:
        """OpenAI's error object."""
        default = "invalid_request_error" if self.status < 500 else "server_error"  # noqa: PLR2004
        kind = _TYPES.get(self.status, default)
        told = {"message": self.message, "type": kind, "param": self.param, "code": self.code}
        return {"error": told}

    def response(self) -> JSONResponse:
        """The whole answer."""
        return JSONResponse(self.body(), self.status, self.headers)


def dead_engine() -> ApiError:
    """The engine's thread is no more."""
    return ApiError(
        503, "the engine stopped after an error: restart the server", code="engine_dead"
    )


def hung_engine(seconds: float) -> ApiError:
    """The engine's thread is there but does not go on."""
    said = f"the engine has stood still for more than {seconds:g} s (hang in [plugins.serve])"
    return ApiError(503, said, code="engine_hung", headers={"Retry-After": "10"})


def timed_out(said: str) -> ApiError:
    """A request has used up its time.  OpenAI's clients would ask twice more, and wait as long."""
    return ApiError(504, said, code="timeout", headers={"x-should-retry": "false"})


def leaving() -> ApiError:
    """The server was told to stop and the request did not end in time."""
    return ApiError(503, "the server was told to stop", code="server_stopping")


def as_api_error(error: Exception) -> ApiError:
    """What became of a generation, as its client is told."""
    if isinstance(error, ApiError):
        return error
    line = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, MlxfillError) and not isinstance(error, ConfigError | PluginError):
        code = "context_length_exceeded" if "the model's context is" in line else None
        first, space, rest = line.partition(" ")
        field = _FIELD_OF.get(first, first)
        param = field if field in FIELDS or first in _FIELD_OF else None
        return ApiError(400, f"{field}{space}{rest}", param=param, code=code)
    return ApiError(500, f"generation failed: {type(error).__name__}: {line}")
