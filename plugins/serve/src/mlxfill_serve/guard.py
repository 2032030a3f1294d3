"""Who may ask: the API key, and pages of other sites."""

from __future__ import annotations

import hmac
import ipaddress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.datastructures import Headers

from mlxfill_serve.errors import ApiError
from mlxfill_serve.settings import ANY
from mlxfill_serve.shapes import response_for

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from mlxfill_serve.settings import ServeSettings


class Guard:
    """Refuses requests before anything of them is read.

    A browser lets any page send requests to this machine.  So a request that a page of another
    origin sends is refused unless the operator allows that origin; and a server that listens on
    this machine alone answers to local names only, since any name may be made to point here.
    """

    def __init__(self, app: ASGIApp, settings: ServeSettings) -> None:
        self._app, self._origins = app, frozenset(settings.origins)
        self._key = settings.api_key.encode() if settings.api_key else None
        self._names = _names(settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on what is allowed."""
        if scope["type"] == "http":
            refused = self._refusal(scope["path"], Headers(scope=scope))
            if refused is not None:
                await response_for(scope["path"], refused)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _refusal(self, path: str, headers: Headers) -> ApiError | None:
        host, origin = headers.get("host", ""), headers.get("origin")
        if self._names and _name(f"//{host}") not in self._names:
            said = f"this server does not answer to the name {host[:80]!r} (--allow-origin)"
            return ApiError(403, said, code="host_not_allowed")
        if origin is not None and not self._allows(origin, host):
            said = f"pages of {origin[:80]} may not use this server (--allow-origin)"
            return ApiError(403, said, code="origin_not_allowed")
        if self._key is not None and _guarded(path) and not self._knows(headers):
            said = "give the server's API key: Authorization: Bearer KEY"
            headers_out = {"WWW-Authenticate": "Bearer"}
            return ApiError(401, said, code="invalid_api_key", headers=headers_out)
        return None

    def _allows(self, origin: str, host: str) -> bool:
        return bool(self._origins & {ANY, origin}) or _netloc(origin) == host

    def _knows(self, headers: Headers) -> bool:
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if "x-api-key" in headers:  # as Anthropic's clients send it
            scheme, given = "bearer", headers["x-api-key"]
        # Beyond ASCII browsers send Latin-1, as which headers are read, and most others UTF-8.  All
        # is compared, in a time that does not tell how much of the key is right.
        spelled = [given.strip().encode(encoding) for encoding in ("latin-1", "utf-8")]
        known = [hmac.compare_digest(each, self._key or b"") for each in spelled]
        return any(known) and scheme.lower() == "bearer"


def _guarded(path: str) -> bool:
    """Whether a path needs the key: everything but the page and what says that the server lives."""
    return path.startswith(("/v1/", "/chat/", "/api/", "/metrics"))


def _names(settings: ServeSettings) -> frozenset[str]:
    """The names that a server on this machine alone answers to; none: any."""
    if ANY in settings.origins or not _is_loopback(settings.host):
        return frozenset()
    allowed = {_name(origin) for origin in settings.origins}
    return frozenset({"localhost", "127.0.0.1", "::1", settings.host, *allowed})


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _netloc(url: str) -> str:
    """Host and port of a URL; "" where there are none."""
    try:
        return urlsplit(url).netloc
    except ValueError:
        return ""


def _name(url: str) -> str:
    """The host of a URL, without its port."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""
