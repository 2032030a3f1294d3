"""The command ``mlxfill serve``."""

from __future__ import annotations

import gc
import os
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mlxfill import InputError, installed_plugin

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mlxfill import Config
    from mlxfill_serve.settings import ServeSettings

EMBEDDED = "tiny"
KEY = "MLXFILL_API_KEY"
SETTING = "MLXFILL_PLUGINS__SERVE__API_KEY"
"""The environment's words for ``--api-key`` and for the same in the config."""
SESSIONS = 32
"""Entries of the prompt cache for each row."""


def serve(  # noqa: PLR0913, PLR0917 - the options of a command
    ctx: typer.Context,
    model: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Folder, name of a model plugin, or hub id."),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="What clients call the model; as --model when left out."),
    ] = None,
    plugins: Annotated[
        str | None,
        typer.Option(metavar="A,B", help="Plugins to switch on, by priority, and no others."),
    ] = None,
    no_plugins: Annotated[
        bool, typer.Option("--no-plugins", help="Switch all plugins off: plain decoding.")
    ] = False,
    draft: Annotated[
        str | None,
        typer.Option(
            "--draft", "--draft-model", metavar="NAME", help="Folder or name of a drafter."
        ),
    ] = None,
    draft_kind: Annotated[
        str | None, typer.Option(metavar="KIND", help="How to draft; found out when left out.")
    ] = None,
    num_draft_tokens: Annotated[
        int | None, typer.Option(metavar="N", help="Most tokens that a drafter guesses at once.")
    ] = None,
    adapter: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=FOLDER", help="A LoRA adapter that requests may name; may be repeated."
        ),
    ] = None,
    host: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Where to listen: 127.0.0.1.")
    ] = None,
    port: Annotated[int | None, typer.Option(metavar="N", help="8080; 0: any free port.")] = None,
    api_key: Annotated[
        str | None,
        typer.Option(metavar="KEY", envvar=KEY, help="Requests must bring this key."),
    ] = None,
    allow_public: Annotated[
        bool | None,
        typer.Option("--allow-public", help="Let other machines in although there is no key."),
    ] = None,
    allow_origin: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-origin",
            "--allowed-origins",
            metavar="URL",
            help="Pages of this origin may send requests; may be repeated; *: all.",
        ),
    ] = None,
    rows: Annotated[
        int | None,
        typer.Option(
            "--rows", "--decode-concurrency", metavar="N", help="Requests decoded together: 8."
        ),
    ] = None,
    queue: Annotated[int | None, typer.Option(metavar="N", help="Requests that wait: 64.")] = None,
    timeout: Annotated[
        float | None, typer.Option(metavar="S", help="Seconds that a request may take: 600.")
    ] = None,
    max_tokens: Annotated[
        int | None,
        typer.Option(metavar="N", help="Most tokens that a request gets: 32768; 0: no limit."),
    ] = None,
    audit: Annotated[
        int | None,
        typer.Option(metavar="N", help="Most tokens of a request that asks for an audit: 0, none."),
    ] = None,
    log: Annotated[
        str | None,
        typer.Option(metavar="FORM", help="A line for each request: text or json; off as it is."),
    ] = None,
) -> None:
    """Answer requests in the manner of OpenAI's API, and show a page to talk to the model."""
    config: Config = ctx.obj.config()
    given = {
        "host": host,
        "port": port,
        "api_key": _key(api_key),
        "allow_public": allow_public,
        "origins": tuple(allow_origin) if allow_origin else None,
        "rows": rows,
        "queue": queue,
        "timeout": timeout,
        "max_tokens": max_tokens,
        "audit": audit,
        "log": log,
        "adapters": _adapters(adapter) if adapter else None,
    }
    settings = _settings(config, given)
    folder = model or config.model or EMBEDDED
    loading = {
        "draft": draft,
        "draft_kind": draft_kind,
        "num_draft_tokens": num_draft_tokens,
        "plugins": _plugins(plugins, off=no_plugins),
        "adapters": settings.adapters,
        "config": _remembering(config, settings.rows),
    }
    _run(folder, loading, settings, name or folder)


def _run(folder: str, loading: Mapping[str, Any], settings: ServeSettings, name: str) -> None:
    from mlxfill import load
    from mlxfill_serve.app import make_app
    from mlxfill_serve.server import listen, run
    from mlxfill_serve.worker import EngineThread

    sock = listen(settings)  # an address that is taken is told before the model is loaded
    worker = EngineThread(lambda: load(folder, **loading), settings=settings)
    try:
        engine = worker.start()
        # What is loaded stays: Python's collector need not look at it again and again.
        gc.collect()
        gc.freeze()
        worker.faults.tell(engine.faults)
        run(make_app(worker, name=name, settings=settings), worker, settings, sock)
    finally:
        worker.stop()
        sock.close()


def _remembering(config: Config, rows: int) -> Config:
    """Let all requests use the prompt cache, with room for many sessions at once.

    What the config says itself holds.  A request leaves several beginnings of its prompt behind;
    with few entries, sessions that take turns would push out each other's.
    """
    import attrs

    wanted: dict[str, Any] = {"every_request": True, "max_entries": SESSIONS * rows}
    open_ = {k: v for k, v in wanted.items() if f"cache.{k}" not in config.sources}
    return attrs.evolve(config, cache=attrs.evolve(config.cache, **open_))


def _settings(config: Config, given: Mapping[str, Any]) -> ServeSettings:
    import attrs

    from mlxfill_serve.settings import ServeSettings

    settings: ServeSettings = config.plugin_settings("serve", ServeSettings)
    return attrs.evolve(settings, **{k: v for k, v in given.items() if v is not None})


def _key(given: str | None) -> str | None:
    """The key of the command line or the environment, where an empty variable counts as unset."""
    empty = next((name for name in (KEY, SETTING) if os.environ.get(name) == ""), None)
    if given is None and empty:
        raise InputError(f"{empty} is empty: give it a value, or unset it")
    return given


def _plugins(names: str | None, *, off: bool) -> list[str] | None:
    if off and names:
        raise InputError(f"give either --plugins {names} or --no-plugins, not both")
    if off:
        return []
    if names is None:
        return None
    return [installed_plugin(name.strip()) for name in names.split(",") if name.strip()]


def _adapters(given: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in given:
        name, sign, folder = pair.partition("=")
        if not (name and sign and folder):
            raise InputError(f"--adapter must be NAME=FOLDER, not {pair!r}")
        if name in found:
            raise InputError(f"--adapter names {name!r} twice")
        found[name] = folder
    return found
