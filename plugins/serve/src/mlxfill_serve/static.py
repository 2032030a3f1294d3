"""The page at ``/``: a route for each of its files, so that no path of a request is looked up."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from starlette.responses import FileResponse
from starlette.routing import Route

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.requests import Request
    from starlette.responses import Response

FOLDER = Path(__file__).parent / "page"
INDEX = "index.html"
HEADERS = {
    # Nothing comes from elsewhere, and no text of a model can become a script: only what DOMPurify
    # has sanitised becomes HTML.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types dompurify"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


def page_routes() -> Iterator[Route]:
    """``/`` and the files that it needs."""
    for file in sorted(FOLDER.rglob("*")):
        if file.is_file():
            name = file.relative_to(FOLDER).as_posix()
            yield _route("/" if name == INDEX else f"/{name}", file)


def _route(path: str, file: Path) -> Route:
    async def send(_: Request) -> Response:
        return FileResponse(file, headers=HEADERS)

    return Route(path, send, methods=["GET"])
