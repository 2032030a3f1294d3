"""The config file as classes: one class a table, one attribute a key.

A trailing underscore keeps an attribute apart from a Python keyword: ``assert_`` is the
key ``assert``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from attrs import field, frozen

from mlxfill.config.document import dotted, source_of
from mlxfill.config.rules import between, one_of
from mlxfill.errors import ConfigError

if TYPE_CHECKING:
    from attrs import Attribute

TABLES = "tables"
"""Metadata mark of the attribute that takes the tables whose names no attribute has."""
NO_KEY = "no key"
"""Metadata mark of an attribute that stands in no file."""

Table = Mapping[str, Any]


def key_of(attribute: Attribute[Any]) -> str:
    """The key that an attribute has in a file."""
    return (attribute.alias or attribute.name).rstrip("_")


@frozen(kw_only=True)
class Generation:
    """``[generation]``: how a request is answered unless it says otherwise.

    Names and defaults that mlx-lm has mean what they mean there.  ``max_tokens`` -1:
    unbounded.  ``seed`` None: one is chosen for each request.  ``top_p`` 0 or 1, ``top_k`` 0,
    ``min_p`` 0: off.  Sizes are in tokens.  ``append_chunk``: ids of a span in one forward,
    0 for as many as fit.  ``max_span``: longest span that a source may append at once.
    """

    max_tokens: int = field(default=512, validator=between(-1))
    temperature: float = field(default=0.0, validator=between(0, 1_000_000))
    top_p: float = field(default=0.0, validator=between(0, 1))
    top_k: int = field(default=0, validator=between(0))
    min_p: float = field(default=0.0, validator=between(0, 1))
    seed: int | None = field(default=None, validator=between(0, (1 << 63) - 1))
    prefill_step_size: int = field(default=2048, validator=between(1))
    max_kv_size: int | None = field(default=None, validator=between(1))
    kv_bits: int | None = field(default=None, validator=one_of(2, 3, 4, 6, 8))
    kv_group_size: int = field(default=64, validator=one_of(32, 64, 128))
    quantized_kv_start: int = field(default=5000, validator=between(0))
    append_chunk: int = field(default=0, validator=between(0))
    max_span: int = field(default=64, validator=between(2))


@frozen(kw_only=True)
class Trust:
    """``[trust]``: ``assert`` lists the plugins whose asserts are appended unread."""

    assert_: tuple[str, ...] = ("fill-strict", "constrain")


@frozen(kw_only=True)
class Gate:
    """``[gate]``: whether speculation switches itself off where it would cost time."""

    enabled: bool = True


@frozen(kw_only=True)
class Plugins:
    """``[plugins]`` and ``[plugins.NAME]``.

    ``enabled``: plugins in the order of their priority, None for all installed.  ``tables``:
    the settings of each plugin as they were written, checked once the plugin is known.
    """

    enabled: tuple[str, ...] | None = None
    tables: Mapping[str, Table] = field(factory=dict, metadata={TABLES: True})


@frozen(kw_only=True)
class Config:
    """Everything that can be settled outside a request.

    ``sources`` says where each value came from: ``{"generation.seed": "mlxfill.toml"}``.
    A key that is not in it has its default.  ``file``: the file that was read.
    """

    model: str | None = None
    draft: str | None = None
    draft_kind: str | None = None
    num_draft_tokens: int | None = field(default=None, validator=between(0))
    plugins: Plugins = field(factory=Plugins)
    generation: Generation = field(factory=Generation)
    trust: Trust = field(factory=Trust)
    gate: Gate = field(factory=Gate)
    file: str | None = field(default=None, eq=False, metadata={NO_KEY: True})
    sources: Mapping[str, str] = field(factory=dict, eq=False, repr=False, metadata={NO_KEY: True})

    def plugin_settings(self, plugin: str, settings: type | None) -> Any:  # noqa: ANN401
        """``[plugins.NAME]`` as an instance of the plugin's own attrs class.

        :param settings: the class; None for a plugin that takes no settings, then so is the answer.
        :raises ConfigError: one line for each key that is unknown, of the wrong type, not legal
            or missing.
        """
        from mlxfill.config.structure import structure

        table, at = self.plugins.tables.get(plugin, {}), ("plugins", plugin)
        if settings is not None:
            return structure(settings, table, at, self.place)
        if table:
            raise ConfigError(f"{self.where(*at)}: this plugin takes no settings")
        return None

    def place(self, path: tuple[str, ...]) -> str:
        """Where the value at a path, or the first value inside a table, was written."""
        return source_of(self.sources, path) or self.file or "config"

    def where(self, *path: str) -> str:
        """How an error names a key: ``mlxfill.toml: plugins.enabled``."""
        return f"{self.place(path)}: {dotted(path)}"
