"""The options that say what answers, and the engine that they make."""

from __future__ import annotations

import gc
import os
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from attrs import define

from mlxfill.errors import InputError
from mlxfill.installing import to_install

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mlxfill.config import Config
    from mlxfill.engine import Engine

EMBEDDED = "tiny"
"""The model that is used when none is named; it comes with a plugin."""


@define
class Loading:
    """Model, plugins, drafter and adapter.  Names that mlx-lm has are taken too."""

    model: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Folder, name of a model plugin, or hub id."),
    ] = None
    plugins: Annotated[
        str | None,
        typer.Option(metavar="A,B", help="Plugins to switch on, by priority, and no others."),
    ] = None
    no_plugins: Annotated[
        bool, typer.Option("--no-plugins", help="Switch all plugins off: plain decoding.")
    ] = False
    draft: Annotated[
        str | None,
        typer.Option(
            "--draft",
            "--draft-model",
            metavar="NAME",
            help="Folder or name of a drafter; auto: the best on this machine.",
        ),
    ] = None
    draft_kind: Annotated[
        str | None, typer.Option(metavar="KIND", help="How to draft; found out when left out.")
    ] = None
    num_draft_tokens: Annotated[
        int | None, typer.Option(metavar="N", help="Most tokens that a drafter guesses at once.")
    ] = None
    adapter_path: Annotated[
        str | None,
        typer.Option("--adapter", "--adapter-path", metavar="FOLDER", help="A LoRA adapter."),
    ] = None

    def plugin_names(self) -> list[str] | None:
        """What ``mlxfill.load`` takes as ``plugins``.

        The last words of a plugin's name will do: ``ngram``.

        :raises InputError: plugins are both named and switched off.
        :raises PluginError: one is not installed.
        """
        if self.no_plugins and self.plugins:
            raise InputError(f"give either --plugins {self.plugins} or --no-plugins, not both")
        if self.no_plugins:
            return []
        if self.plugins is None:
            return None
        from mlxfill.plugins import installed_plugin

        return [installed_plugin(name.strip()) for name in self.plugins.split(",") if name.strip()]

    def model_name(self, config: Config) -> str:
        """The model of the command line, of the config, or the embedded one.

        :raises InputError: none is named and the embedded one is not installed.
        """
        from mlxfill.plugins import scan

        named = config.model if self.model is None else self.model
        if named is not None:
            return named
        if EMBEDDED in scan().models:
            return EMBEDDED
        raise InputError(
            "no model is named: give --model, write model = ... in mlxfill.toml, "
            f"or {to_install(f'model-{EMBEDDED}')}"
        )

    def engine(self, config: Config) -> Engine:
        """The engine, with its model loaded.

        :raises InputError, ModelError, PluginError, DrafterError: one line each.
        """
        with _uncollected():
            from mlxfill.engine import load
            from mlxfill.model.team import launched

            engine = load(
                self.model_name(config),
                draft=self.draft,
                draft_kind=self.draft_kind,
                num_draft_tokens=self.num_draft_tokens,
                plugins=self.plugin_names(),
                config=config,
                adapter_path=self.adapter_path,
                group=launched(),
            )
        if engine.team.rank > 0:
            _fall_silent()
        return engine


@contextmanager
def _uncollected() -> Iterator[None]:
    """Keep Python's garbage collector from what is imported and loaded, which stays and is much.

    ``main`` gives it back.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()


def _fall_silent() -> None:
    """Of the ranks that share a model the first one speaks; ``main`` gives the streams back."""
    sys.stdout = sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - stays
