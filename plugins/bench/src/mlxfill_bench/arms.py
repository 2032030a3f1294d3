"""The arms: engines that share one model and differ in their plugins."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from attrs import evolve

from mlxfill import Engine, InputError, load

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mlxfill import Config

PLAIN = "plain"
"""The arm without plugins, which all others are held against."""
SOURCES_HOOK = "mlxfill_proposal_sources"


def named_arms(text: str) -> list[str]:
    """``plain,fill-echo,fill-echo+spec-ngram`` as a list, with ``plain`` in front.

    :raises InputError: an arm is empty, named twice, or joins ``plain`` with plugins.
    """
    names = ["+".join(plugin.strip() for plugin in arm.split("+")) for arm in text.split(",")]
    others = [name for name in names if name != PLAIN]
    if not others:
        raise InputError(f"--arms {text}: name plugins to hold against {PLAIN}: spec-ngram")
    for name in others:
        plugins = name.split("+")
        if "" in plugins or PLAIN in plugins:
            raise InputError(f"--arms {text}: an arm is plugins joined by +, not {name!r}")
        if names.count(name) > 1:
            raise InputError(f"--arms {text}: {name} is named twice")
    return [PLAIN, *others]


@contextmanager
def open_arms(
    model: str, names: Sequence[str] | None, config: Config
) -> Iterator[dict[str, Engine]]:
    """Engines by the name of their arm, ``plain`` first.

    :param names: as from ``named_arms``; None for each plugin that is on and proposes tokens, and
        all of them together.
    :param config: settings and trust of the plugins; a drafter that it names is left out.
    :raises InputError: no plugin that is on proposes tokens.
    :raises ModelError, PluginError, ConfigError: one line each.
    """
    settled = evolve(config, draft=None, draft_kind=None, num_draft_tokens=0)
    with ExitStack() as opened:
        first = opened.enter_context(load(model, plugins=[], config=settled))
        engines = {PLAIN: first}
        for name in names or _arms_that_are_on(first, settled):
            if name != PLAIN:
                engines[name] = opened.enter_context(_sibling(first, name.split("+"), settled))
                engines[name].prepare()
        yield engines


def _sibling(first: Engine, plugins: Sequence[str] | None, config: Config) -> Engine:
    """Another engine on the same model."""
    return Engine(
        first.model,
        first.tokenizer,
        plugins=plugins,
        config=config,
        path=first.target.path,
        context=first.context,
    )


def _arms_that_are_on(first: Engine, config: Config) -> list[str]:
    with _sibling(first, None, config) as engine:
        on = [n for n in engine.plugins.names if SOURCES_HOOK in engine.plugins.hooks(n)]
    if not on:
        raise InputError(
            "no plugin that proposes tokens is on: pip install mlxfill-spec-ngram, or name --arms"
        )
    return [*on, "+".join(on)] if len(on) > 1 else on
