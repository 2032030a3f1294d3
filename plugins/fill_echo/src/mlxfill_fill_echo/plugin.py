"""The entry point ``fill-echo``: one proposal source for each request."""

from __future__ import annotations

from mlxfill import ProposalSource, Request, hookimpl
from mlxfill_fill_echo.sessions import SESSIONS
from mlxfill_fill_echo.settings import EchoSettings
from mlxfill_fill_echo.source import EchoSource

MLXFILL_API = 2


@hookimpl
def mlxfill_settings() -> type[EchoSettings]:
    """The table ``[plugins.fill-echo]``."""
    return EchoSettings


@hookimpl
def mlxfill_proposal_sources(
    request: Request, settings: EchoSettings | None
) -> list[ProposalSource]:
    """One source, which knows the prompt and the session that the request belongs to."""
    settings = settings or EchoSettings()
    return [EchoSource(SESSIONS.open(request, settings), settings, request.delimiters)]
