"""Errors in the shape that clients of a path know."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlxfill_serve.anthropic.errors import error_response as anthropic_error
from mlxfill_serve.ollama.answers import error_response as ollama_error

if TYPE_CHECKING:
    from starlette.responses import JSONResponse

    from mlxfill_serve.errors import ApiError

SHAPES = {"/v1/messages": anthropic_error, "/api/": ollama_error}


def response_for(path: str, error: ApiError) -> JSONResponse:
    """The whole answer to a request of this path: OpenAI's shape, unless it is another's."""
    for beginning, shape in SHAPES.items():
        if path.startswith(beginning):
            return shape(error)
    return error.response()
