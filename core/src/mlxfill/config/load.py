"""From file and environment to a checked ``Config``."""

from __future__ import annotations

import os
import reprlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from mlxfill.config.annotations import NO_KEY
from mlxfill.config.document import Document, compose, source_of
from mlxfill.config.environment import overrides
from mlxfill.config.location import read_config
from mlxfill.config.sections import Config
from mlxfill.config.structure import examine
from mlxfill.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

Examined = tuple[Config, list[str]]
"""What is legal of a config, and a line for each mistake."""


def load_config(
    source: Config | str | os.PathLike[str] | Mapping[str, Any] | None = None,
    *,
    environ: Mapping[str, str] = os.environ,
) -> Config:
    """The config that holds here.

    :param source: a file; None for the first of ``$MLXFILL_CONFIG``, ``./mlxfill.toml``,
        ``[tool.mlxfill]`` in ``./pyproject.toml`` and the user's config folder; a mapping, taken
        as the content of a file that no variable overrides; a ``Config``, returned as it is.
    :param environ: variables ``MLXFILL_<SECTION>__<KEY>`` override what the file says.
    :raises ConfigError: one line for each mistake, with the place, the full path of the key and
        what would be legal.
    """
    config, problems = examine_config(source, environ=environ)
    if problems:
        raise ConfigError("\n".join(problems))
    return config


def examine_config(
    source: Config | str | os.PathLike[str] | Mapping[str, Any] | None = None,
    *,
    environ: Mapping[str, str] = os.environ,
) -> Examined:
    """As ``load_config``: what is legal of the config, and a line for each mistake in it.

    :raises ConfigError: the file cannot be read at all, or is of another type.
    """
    if isinstance(source, Config):
        return source, []
    if not isinstance(source, str | os.PathLike | Mapping | None):
        shown = reprlib.repr(source)
        raise ConfigError(f"config must be a file, a mapping with its content or None, not {shown}")
    try:
        return _from_mapping(source) if isinstance(source, Mapping) else _from_file(source, environ)
    except RecursionError as error:
        raise ConfigError("the config is nested too deeply") from error


def _from_mapping(values: Mapping[str, Any]) -> Examined:
    return _checked(compose("config", values, ()), None)


def _from_file(named: str | os.PathLike[str] | None, environ: Mapping[str, str]) -> Examined:
    file, values = read_config(None if named is None else Path(named), environ)
    plain_keys = {
        "plugins",
        *(
            a.name
            for a in attrs.fields(Config)
            if not attrs.has(a.type or object) and NO_KEY not in a.metadata
        ),
    }
    return _checked(compose(file or "config", values, overrides(environ, plain_keys)), file)


def _checked(document: Document, file: str | None) -> Examined:
    def place(path: Sequence[str]) -> str:
        return source_of(document.sources, tuple(path)) or file or "config"

    config, problems = examine(Config, document.values, (), place)
    return attrs.evolve(config or Config(), file=file, sources=document.sources), problems
