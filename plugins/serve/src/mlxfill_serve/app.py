"""The application: paths, and what holds for all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from mlxfill_serve.dialects.hearing import HEADER
from mlxfill_serve.endpoints import Endpoints
from mlxfill_serve.errors import ApiError, as_api_error
from mlxfill_serve.guard import Guard
from mlxfill_serve.metrics import CONTENT_TYPE, Measured, Metrics
from mlxfill_serve.models import Models
from mlxfill_serve.openapi import document
from mlxfill_serve.requestlog import OFF, RequestLog
from mlxfill_serve.responses.store import ResponseStore
from mlxfill_serve.settings import ServeSettings
from mlxfill_serve.shapes import response_for
from mlxfill_serve.static import page_routes

if TYPE_CHECKING:
    from starlette.requests import Request

    from mlxfill_serve.worker import EngineThread

NOT_FOUND = 404
API = (
    "/v1/chat/completions",
    "/v1/responses",
    "/v1/messages",
    "/v1/completions",
    "/v1/models",
)
"""What clients that ask for another path can be set to."""


def make_app(
    worker: EngineThread, *, name: str, settings: ServeSettings | None = None
) -> Starlette:
    """The ASGI application for a worker that was started.

    :param name: the model's name in ``/v1/models`` and in requests.
    """
    settled = settings or ServeSettings()
    metrics = Metrics(worker)
    models = Models(name, tuple(settled.adapters), settled.aliases)
    store = ResponseStore(longest=settled.max_body)
    log = None if settled.log == OFF else RequestLog(settled.log)
    api = Endpoints(worker, models, settled, metrics, store)

    async def measured(_: Request) -> Response:
        return Response(metrics.page(), media_type=CONTENT_TYPE)

    async def described(_: Request) -> Response:
        return JSONResponse(document())

    routes = [
        Route("/v1/chat/completions", api.chat, methods=["POST"]),
        Route("/chat/completions", api.chat, methods=["POST"]),
        Route("/v1/responses", api.respond, methods=["POST"]),
        Route("/v1/completions", api.complete, methods=["POST"]),
        Route("/v1/messages", api.message, methods=["POST"]),
        Route("/v1/messages/count_tokens", api.count_tokens, methods=["POST"]),
        Route("/api/chat", api.ollama_chat, methods=["POST"]),
        Route("/api/generate", api.ollama_generate, methods=["POST"]),
        Route("/api/show", api.ollama_show, methods=["POST"]),
        Route("/api/tags", api.ollama_tags, methods=["GET"]),
        Route("/api/version", api.ollama_version, methods=["GET"]),
        Route("/v1/models", api.list_models, methods=["GET"]),
        Route("/v1/models/{name:path}", api.one_model, methods=["GET"]),
        Route("/health", api.health, methods=["GET"]),
        Route("/metrics", measured, methods=["GET"]),
        Route("/openapi.json", described, methods=["GET"]),
        *page_routes(),
    ]
    middleware = [
        Middleware(Measured, metrics=metrics, routes=routes, log=log),
        # Before the guard: a browser asks without the key whether it may ask, and lets a page read
        # a refusal only where this says so.
        *([_cors(settled)] if settled.origins else []),
        Middleware(Guard, settings=settled),
    ]
    handlers = {
        ApiError: _api_error,
        HTTPException: _http_error,
        ClientDisconnect: _nobody,
        Exception: _any_error,
    }
    return Starlette(routes=routes, middleware=middleware, exception_handlers=handlers)


def _cors(settings: ServeSettings) -> Middleware:
    """Lets pages of the allowed origins read answers."""
    return Middleware(
        CORSMiddleware,
        allow_origins=list(settings.origins),
        allow_methods=["GET", "POST"],
        allow_headers=["*"],  # OpenAI's client sends a dozen of its own
        expose_headers=[HEADER],
    )


async def _api_error(request: Request, error: Exception) -> Response:
    told, heard = as_api_error(error), getattr(request.state, "heard", None)
    told = told if heard is None else heard.in_words_of_client(told)
    return response_for(request.url.path, told)


async def _http_error(request: Request, error: Exception) -> Response:
    """What Starlette itself refuses: paths and methods."""
    if not isinstance(error, HTTPException):
        return response_for(request.url.path, as_api_error(error))
    said = f"{request.method} {request.url.path[:80]}: {error.detail}"
    if error.status_code == NOT_FOUND:
        said += f"; there are: {', '.join(API)}"
    refused = ApiError(error.status_code, said, headers=dict(error.headers or {}))
    return response_for(request.url.path, refused)


async def _nobody(_: Request, __: Exception) -> Response:
    """The client was gone before it had said everything."""
    return Response(status_code=499)


async def _any_error(request: Request, error: Exception) -> Response:
    """A mistake of ours: the client gets one line, the log the rest."""
    return response_for(request.url.path, as_api_error(error))
