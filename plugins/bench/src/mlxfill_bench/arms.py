"""The arms: engines that share one model and differ in their plugins and drafter."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from attrs import evolve, frozen

from mlxfill import Engine, InputError, installed_plugin, load

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mlxfill import Config

PLAIN = "plain"
"""The arm without plugins, which all others are held against."""
DRAFT = "draft="
SOURCES_HOOK = "mlxfill_proposal_sources"
DRAFTERS_HOOK = "mlxfill_draft_kinds"


@frozen
class Parts:
    """What an arm is made of: plugins by priority, and a drafter's folder or name."""

    plugins: tuple[str, ...]
    draft: str | None

    @classmethod
    def of(cls, arm: str) -> Parts:
        """``spec-ngram+draft=small`` taken apart."""
        words = [] if arm == PLAIN else arm.split("+")
        drafts = [word.removeprefix(DRAFT) for word in words if word.startswith(DRAFT)]
        return cls(tuple(word for word in words if not word.startswith(DRAFT)), (*drafts, None)[0])


def named_arms(text: str) -> list[str]:
    """``plain,fill-echo,fill-echo+spec-ngram,draft=FOLDER`` as a list, with ``plain`` in front.

    The last words of a plugin's name will do where they name one that is installed: ``ngram``.

    :raises InputError: an arm is empty, named twice, joins ``plain`` with plugins or has two
        drafters.
    :raises PluginError: a plugin is not installed.
    """
    names = ["+".join(map(_full_name, arm.split("+"))) for arm in text.split(",")]
    others = [name for name in names if name != PLAIN]
    if not others:
        raise InputError(f"--arms {text}: name plugins to hold against {PLAIN}: spec-ngram")
    for name in others:
        words = name.split("+")
        if {"", PLAIN, DRAFT} & set(words):
            raise InputError(f"--arms {text}: an arm is plugins joined by +, not {name!r}")
        if sum(word.startswith(DRAFT) for word in words) > 1:
            raise InputError(f"--arms {text}: an arm has one drafter, not {name!r}")
        if names.count(name) > 1:
            raise InputError(f"--arms {text}: {name} is named twice")
    return [PLAIN, *others]


def _full_name(word: str) -> str:
    """An installed plugin's name for its last words; what names no plugin as it is."""
    word = word.strip()
    return word if word in {"", PLAIN} or word.startswith(DRAFT) else installed_plugin(word)


@contextmanager
def open_arms(
    model: str, names: Sequence[str] | None, config: Config
) -> Iterator[dict[str, Engine]]:
    """Engines by the name of their arm, ``plain`` first.

    :param names: as from ``named_arms``; None for each plugin that is on and proposes tokens, the
        drafter of the config or of the model's folder, and all of them together.
    :param config: settings and trust of the plugins.  Its drafter is in the arms that name it or
        the plugin behind it.
    :raises InputError: no plugin that is on proposes tokens, or an arm's plugin has nothing to
        draft with.
    :raises ModelError, PluginError, ConfigError, DrafterError: one line each.
    """
    with ExitStack() as opened:
        first = opened.enter_context(load(model, plugins=[], config=_undrafted(config)))
        makers = _Makers(first, config)
        engines = {PLAIN: first}
        for name in names or makers.arms_that_are_on():
            if name != PLAIN:
                engines[name] = opened.enter_context(makers.engine(name))
                engines[name].prepare()
        yield engines


def needed(engine: Engine, arm: str) -> tuple[str, ...]:
    """The plugins that must be on for what ``arm`` does, by priority."""
    plugins, drafter = Parts.of(arm).plugins, engine.drafter
    if drafter is None or drafter.plugin in plugins:
        return plugins
    return (*plugins, drafter.plugin)


def own_plugins(engine: Engine, arm: str) -> frozenset[str]:
    """The plugins whose failure makes ``arm`` another arm."""
    with_others = Parts.of(arm).draft is not None  # any drafter's plugin may have read the folder
    return frozenset(needed(engine, arm) if with_others else engine.plugins.names)


class _Makers:
    """Makes the engines of the arms on one model."""

    def __init__(self, first: Engine, config: Config) -> None:
        self._first, self._config = first, config
        every = evolve(config, plugins=evolve(config.plugins, enabled=None))
        with self._sibling(None, _undrafted(every)) as engine:
            hooks = {name: engine.plugins.hooks(name) for name in engine.plugins.names}
        self._sources = {name for name, known in hooks.items() if SOURCES_HOOK in known}
        drafters = {name for name, known in hooks.items() if DRAFTERS_HOOK in known}
        self._drafters = sorted(drafters - self._sources)

    def engine(self, arm: str) -> Engine:
        parts = Parts.of(arm)
        if parts.draft is not None:
            others = [name for name in self._drafters if name not in parts.plugins]
            config = evolve(self._config, draft=parts.draft, draft_kind=None)
            return self._sibling([*parts.plugins, *others], config)
        drafting = [name for name in parts.plugins if name in self._drafters]
        if not drafting:
            return self._sibling(parts.plugins, _undrafted(self._config))
        engine = self._sibling(parts.plugins, self._config)
        if engine.drafter is None:
            engine.close()
            raise InputError(
                f"arm {arm}: {drafting[0]} has nothing to draft with: draft=FOLDER, or, if it needs"
                " no folder, draft_kind in the config"
            )
        return engine

    def arms_that_are_on(self) -> list[str]:
        with self._sibling(None, _undrafted(self._config)) as engine:
            on = [name for name in engine.plugins.names if name in self._sources]
            drafters = [name for name in engine.plugins.names if name in self._drafters]
        on += self._drafter_that_is_on(drafters)
        if not on:
            there = sorted({*self._sources, *self._drafters}) or [installed_plugin("spec-ngram")]
            cure = f"switch on one of {', '.join(there)}"
            raise InputError(f"no plugin that proposes tokens is on: {cure}, or name --arms")
        return [*on, "+".join(on)] if len(on) > 1 else on

    def _drafter_that_is_on(self, plugins: Sequence[str]) -> list[str]:
        """The word in an arm's name for the drafter that a user of this config has."""
        if self._config.draft is not None:
            return [f"{DRAFT}{self._config.draft}"]
        if not plugins:
            return []
        with self._sibling(plugins, self._config) as engine:
            return [engine.drafter.plugin] if engine.drafter else []

    def _sibling(self, plugins: Sequence[str] | None, config: Config) -> Engine:
        """Another engine on the same model."""
        first = self._first
        return Engine(
            first.model,
            first.tokenizer,
            plugins=plugins,
            config=config,
            path=first.target.path,
            context=first.context,
        )


def _undrafted(config: Config) -> Config:
    return evolve(config, draft=None, draft_kind=None, num_draft_tokens=0)
