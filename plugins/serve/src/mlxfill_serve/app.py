"""The application: paths, and what holds for all of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from mlxfill_serve.endpoints import Endpoints
from mlxfill_serve.errors import ApiError, as_api_error
from mlxfill_serve.models import Models
from mlxfill_serve.settings import ServeSettings

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from mlxfill_serve.worker import EngineThread

PAGE = Path(__file__).parent / "page"


def make_app(
    worker: EngineThread, *, name: str, settings: ServeSettings | None = None
) -> Starlette:
    """The ASGI application for a worker that was started.

    :param name: the model's name in ``/v1/models`` and in requests.
    """
    settled = settings or ServeSettings()
    api = Endpoints(worker, Models(name), settled)
    routes = [
        Route("/v1/chat/completions", api.chat, methods=["POST"]),
        Route("/chat/completions", api.chat, methods=["POST"]),
        Route("/v1/completions", api.complete, methods=["POST"]),
        Route("/v1/models", api.list_models),
        Route("/v1/models/{name:path}", api.one_model),
        Route("/health", api.health),
        Mount("/", StaticFiles(directory=PAGE, html=True)),
    ]
    handlers = {ApiError: _api_error, HTTPException: _http_error, Exception: _any_error}
    return Starlette(routes=routes, exception_handlers=handlers)


async def _api_error(_: Request, error: Exception) -> Response:
    return as_api_error(error).response()


async def _http_error(request: Request, error: Exception) -> Response:
    """What Starlette itself refuses: paths and methods."""
    if not isinstance(error, HTTPException):
        return as_api_error(error).response()
    said = f"{request.method} {request.url.path[:80]}: {error.detail}"
    return ApiError(error.status_code, said, headers=dict(error.headers or {})).response()


async def _any_error(_: Request, error: Exception) -> Response:
    return ApiError(500, f"{type(error).__name__}: {error}").response()
