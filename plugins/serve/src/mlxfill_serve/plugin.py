"""The entry point ``serve``: the command, its table in the config, and ``mlxfill chat --url``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mlxfill import hookimpl
from mlxfill_serve.settings import ServeSettings

if TYPE_CHECKING:
    import typer

    from mlxfill_serve.remote import RemoteConversation

MLXFILL_API = 2


@hookimpl
def mlxfill_settings() -> type[ServeSettings]:
    """The table ``[plugins.serve]``."""
    return ServeSettings


@hookimpl
def mlxfill_register_commands(app: typer.Typer) -> None:
    """Add ``mlxfill serve`` and ``mlxfill launch``."""
    from mlxfill_serve.command import serve
    from mlxfill_serve.launch import launch

    app.command()(serve)
    app.command()(launch)


def converse(url: str, **options: Any) -> RemoteConversation:  # noqa: ANN401 - passed on
    """The conversation of ``mlxfill chat --url``."""
    from mlxfill_serve.remote import RemoteConversation

    return RemoteConversation(url, **options)
