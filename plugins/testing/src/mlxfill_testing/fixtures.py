"""Fixtures for tests of plugins: pytest finds them where ``mlxfill-testing`` is installed.

``tiny_engine`` runs a test once for every kind of cache; one kind is chosen by
``@pytest.mark.parametrize("tiny_engine", ["hybrid"], indirect=True)``.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from attrs import define, field

from mlxfill_testing.guest import Guest, engine_with
from mlxfill_testing.kinds import CACHE_KINDS, CacheKind
from mlxfill_testing.screen import Screen, check_quickly, is_quick, show_on, shown_on

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from mlxfill import Engine, PluginManager, Result


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--quick-checks``."""
    parser.addoption(
        "--quick-checks",
        action="store_true",
        help="let mlxfill's checks of plugins try a sixth of what they usually do",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Checks are quick where that was asked for, and show what they do beside what is captured."""
    config.add_cleanup(partial(check_quickly, quick=is_quick()))
    config.add_cleanup(partial(show_on, shown_on()))
    check_quickly(quick=config.getoption("quick_checks", default=False))
    capture: Any = config.pluginmanager.getplugin("capturemanager")
    if capture is not None and not hasattr(config, "workerinput"):
        show_on(partial(beside, capture))


def beside(capture: Any) -> Screen:  # noqa: ANN401 - pytest's
    """A screen that pytest does not capture."""

    def write(text: str) -> None:
        with capture.global_and_fixture_disabled():
            sys.stderr.write(text)
            sys.stderr.flush()

    with capture.global_and_fixture_disabled():
        return Screen(write, sys.stderr.isatty())


RIGHT, WRONG, SOMETIMES = 1.0, 0.0, 0.6


@define
class TinyEngine:
    """Makes engines around one tiny model; those it made are closed when the test ends.

    ::

        def test_output_stays(tiny_engine):
            result = tiny_engine(MyPlugin()).generate([5, 9, 5, 9], **tiny_engine.options)
            assert result.tokens == tiny_engine.plain([5, 9, 5, 9]).tokens

    A plugin is an object with hook methods and a ``name``; ``Guest`` is one.
    """

    kind: CacheKind
    made: list[Engine] = field(factory=list)

    @property
    def options(self) -> dict[str, Any]:
        """What a request must say for this kind of cache, and 20 tokens without an end."""
        return {"max_tokens": 20, "eos_token_ids": (), **self.kind.options}

    def __call__(self, *plugins: Any, **options: Any) -> Engine:  # noqa: ANN401
        """An engine with these plugins; ``options`` as for ``engine_with``."""
        engine = engine_with(self.kind.model(), *plugins, **options)
        self.made.append(engine)
        return engine

    def plain(self, prompt: Any, **options: Any) -> Result:  # noqa: ANN401
        """What an engine without plugins writes."""
        return self().generate(prompt, **{**self.options, **options})

    def close(self) -> None:
        """Close every engine."""
        for engine in self.made:
            engine.close()


@pytest.fixture(params=list(CACHE_KINDS))
def tiny_engine(request: pytest.FixtureRequest) -> Iterator[TinyEngine]:
    """Engines around a tiny model of every kind of cache."""
    engine = TinyEngine(CACHE_KINDS[request.param])
    yield engine
    engine.close()


@pytest.fixture
def plugin_host() -> Callable[..., PluginManager]:
    """Make a host in which nothing is plugged but what is given: names and plugins, and a config.

    ::

        host = plugin_host({"spec-mine": mlxfill_spec_mine.plugin}, {"plugins": {...}})
        sources = host.proposal_sources(request)
    """

    def make(
        plugins: Mapping[str, object], config: Mapping[str, Any] | None = None
    ) -> PluginManager:
        from mlxfill import PluginManager, load_config

        return PluginManager(plugins.items(), config=load_config(dict(config or {})))

    return make


@pytest.fixture
def right_drafter() -> Callable[..., Guest]:
    """Make a plugin whose drafts are those of a known text, prompt and continuation."""
    return partial(Guest.drafting, accuracy=RIGHT)


@pytest.fixture
def wrong_drafter() -> Callable[..., Guest]:
    """Make a plugin whose drafts are all wrong."""
    return partial(Guest.drafting, accuracy=WRONG)


@pytest.fixture
def sometimes_right_drafter() -> Callable[..., Guest]:
    """Make a plugin three in five of whose drafts are right."""
    return partial(Guest.drafting, accuracy=SOMETIMES)
