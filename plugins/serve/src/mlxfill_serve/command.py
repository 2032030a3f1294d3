"""The command ``mlxfill serve``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from mlxfill import Config


def serve(
    ctx: typer.Context,
    model: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Folder, name of a model plugin, or hub id."),
    ] = None,
    host: Annotated[str | None, typer.Option(metavar="ADDRESS", help="Where to listen.")] = None,
    port: Annotated[int | None, typer.Option(metavar="N", help="0: any free port.")] = None,
) -> None:
    """Answer requests in the manner of OpenAI's API, and show a page to talk to the model."""
    import attrs

    from mlxfill import load
    from mlxfill_serve.app import make_app
    from mlxfill_serve.server import run
    from mlxfill_serve.settings import ServeSettings
    from mlxfill_serve.worker import EngineThread

    config: Config = ctx.obj.config()
    settings: ServeSettings = config.plugin_settings("serve", ServeSettings)
    given: dict[str, Any] = {"host": host, "port": port}
    settings = attrs.evolve(settings, **{k: v for k, v in given.items() if v is not None})
    name = model or config.model or "tiny"
    worker = EngineThread(lambda: load(name, config=config), rows=settings.rows)
    worker.start()
    run(make_app(worker, name=name, settings=settings), settings)
    worker.stop()
