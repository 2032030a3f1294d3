"""The config file as classes: one class a table, one attribute a key.

A trailing underscore keeps an attribute apart from a Python keyword: ``assert_`` is the
key ``assert``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import field, frozen

from mlxfill import rules
from mlxfill.config.annotations import NO_KEY, TABLES
from mlxfill.config.document import dotted, source_of
from mlxfill.config.structure import structure
from mlxfill.errors import ConfigError
from mlxfill.installing import brought_by

Table = Mapping[str, Any]


def _trusted() -> tuple[str, ...]:
    return brought_by("trust-default")


@frozen(kw_only=True)
class Generation:
    """``[generation]``: how a request is answered unless it says otherwise.

    Names and defaults that mlx-lm has mean what they mean there.  Sizes are in tokens.

    ``max_tokens``: most tokens of a reply, -1 for no limit.
    ``temperature``: 0 takes the likeliest token, always.
    ``top_p``: sample from the likeliest tokens that share this probability; 0 or 1: off.
    ``top_k``: sample from so many of the likeliest tokens; 0: off.
    ``min_p``: leave out what is less likely than the likeliest token by this factor; 0: off.
    ``seed``: fixes what is sampled; None: one is chosen for each request.
    ``prefill_step_size``: tokens of the prompt in one forward.
    ``max_kv_size``: keep so many tokens in a rotating cache; None: all.
    ``kv_bits``: quantize the KV cache to so many bits; None: leave it as it is.
    ``kv_group_size``: values of the quantized cache that share a scale.
    ``quantized_kv_start``: quantize once the cache holds so many tokens.
    ``append_chunk``: tokens of an asserted span in one forward; 0: as many as fit.
    ``max_span``: longest span that a source may append at once.
    ``special_tokens_in_content``: what a marker of the model (``<|im_end|>``) is that stands in the
    text of a message or tool: ``control``, as in mlx-lm, or ``text``.
    """

    max_tokens: int = field(default=512, validator=rules.whole(-1))
    temperature: float = field(default=0.0, validator=rules.number(0, 1e6))
    top_p: float = field(default=0.0, validator=rules.number(0, 1))
    top_k: int = field(default=0, validator=rules.whole(0))
    min_p: float = field(default=0.0, validator=rules.number(0, 1))
    seed: int | None = field(default=None, validator=rules.whole(0, (1 << 63) - 1, optional=True))
    prefill_step_size: int = field(default=2048, validator=rules.whole(1))
    max_kv_size: int | None = field(default=None, validator=rules.whole(1, optional=True))
    kv_bits: int | None = field(default=None, validator=rules.one_of(None, 2, 3, 4, 6, 8))
    kv_group_size: int = field(default=64, validator=rules.one_of(32, 64, 128))
    quantized_kv_start: int = field(default=5000, validator=rules.whole(0))
    append_chunk: int = field(default=0, validator=rules.whole(0))
    max_span: int = field(default=64, validator=rules.whole(2))
    special_tokens_in_content: str = field(
        default="control", validator=rules.one_of("control", "text")
    )


@frozen(kw_only=True)
class Trust:
    """``[trust]``: whose word counts.

    ``assert_`` (``assert`` in the file): plugins whose asserts are appended unread; those of others
    are verified.
    """

    assert_: tuple[str, ...] = field(factory=_trusted)


@frozen(kw_only=True)
class Gate:
    """``[gate]``: what may be bet on a proposal.

    ``enabled``: leave out windows that would cost more time than they promise to save; off, every
    offer is used as far as it goes.
    """

    enabled: bool = True


@frozen(kw_only=True)
class Cache:
    """``[cache]``: caches of prompts that are kept for requests which begin alike.

    ``max_entries``: keep the caches of so many prompts, the newest; 0: none.
    ``max_mb``: keep so many megabytes of them at most; None: 4096, or a quarter of the memory that
    a GPU shares with the machine, if that is more.
    ``every_request``: not only requests with a ``session`` use them and leave theirs.
    """

    max_entries: int = field(default=16, validator=rules.whole(0))
    max_mb: int | None = field(default=None, validator=rules.whole(0, optional=True))
    every_request: bool = False


@frozen(kw_only=True)
class Plugins:
    """``[plugins]`` and ``[plugins.NAME]``.

    ``enabled``: plugins in the order of their priority; None: all that are installed.
    ``tables``: the settings of each plugin as they were written, checked once the plugin is known.
    """

    enabled: tuple[str, ...] | None = None
    tables: Mapping[str, Table] = field(factory=dict, metadata={TABLES: True})


@frozen(kw_only=True)
class Config:
    """Everything that can be settled outside a request.

    ``model``: folder, name that a model plugin knows, or hub id; None: ``tiny``, where it is
    installed.
    ``draft``: folder or name of a drafter; ``auto``: the best that lies on this machine.
    ``draft_kind``: how to draft; None: found out from the drafter.
    ``num_draft_tokens``: most tokens that a drafter guesses at once, 0 for no drafts; None: what
    the drafter is made for.

    ``sources`` says where each value came from: ``{"generation.seed": "mlxfill.toml"}``.
    A key that is not in it has its default.  ``file``: the file that was read.
    """

    model: str | None = field(default=None, validator=rules.filled)
    draft: str | None = field(default=None, validator=rules.filled)
    draft_kind: str | None = field(default=None, validator=rules.filled)
    num_draft_tokens: int | None = field(default=None, validator=rules.whole(0, optional=True))
    plugins: Plugins = field(factory=Plugins)
    generation: Generation = field(factory=Generation)
    trust: Trust = field(factory=Trust)
    gate: Gate = field(factory=Gate)
    cache: Cache = field(factory=Cache)
    file: str | None = field(default=None, eq=False, metadata={NO_KEY: True})
    sources: Mapping[str, str] = field(factory=dict, eq=False, repr=False, metadata={NO_KEY: True})

    def plugin_settings(self, plugin: str, settings: type | None) -> Any:  # noqa: ANN401
        """``[plugins.NAME]`` as an instance of the plugin's own attrs class.

        :param settings: the class; None for a plugin that takes no settings, then so is the answer.
        :raises ConfigError: one line for each key that is unknown, of the wrong type, not legal
            or missing.
        """
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
