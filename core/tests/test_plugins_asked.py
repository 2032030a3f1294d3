"""Asking plugins: order, settings, and what becomes of those that misbehave."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from attrs import frozen

from mlxfill import (
    DraftKind,
    Event,
    Fault,
    Limits,
    PluginError,
    Request,
    Sampling,
    hookimpl,
    load_config,
)
from mlxfill.plugins import PluginManager

REQUEST = Request(
    prompt_ids=(1, 2, 3),
    prompt_text="abc",
    messages=None,
    tools=None,
    sampling=Sampling(),
    limits=Limits(8),
    tokenizer=cast("Any", None),
    render=str,
    eos_ids=frozenset(),
)
EVENT = Event("finish", {"tokens": 3})


class Source:
    def __init__(self, name: str) -> None:
        self.name = name

    def propose(self, view: Any) -> None: ...

    def observe(self, ids: Any) -> None: ...

    def resolved(self, proposal: Any, accepted: int) -> None: ...


class Offers:
    """Answers every hook with something that carries its own label."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.events: list[Event] = []

    @hookimpl
    def mlxfill_proposal_sources(self, request: Request) -> list[Any]:
        return [
            Source(f"{self.label}{position}") for position in range(len(request.prompt_ids[:2]))
        ]

    @hookimpl
    def mlxfill_draft_kinds(self) -> list[DraftKind]:
        return [DraftKind(self.label, "draft", bool, lambda *_: None)]  # type: ignore[arg-type]

    @hookimpl
    def mlxfill_logits_processors(self) -> tuple[Any, ...]:
        return (lambda tokens, logits: (self.label, tokens, logits),)

    @hookimpl
    def mlxfill_resolve_model(self, name: str) -> str | None:
        return f"/models/{self.label}" if name == "any" else None

    @hookimpl
    def mlxfill_cache_rewinder(self, entry: Any) -> Any:
        return SimpleNamespace(begin=1, commit=1, rewind=1, label=self.label, entry=entry)

    @hookimpl
    def mlxfill_delimiters(self, request: Request) -> list[int]:
        return [*request.prompt_ids[:1], ord(self.label)]

    @hookimpl
    def mlxfill_generation_method(self) -> Any:
        return SimpleNamespace(name=self.label, generate=list)

    @hookimpl
    def mlxfill_observe(self, event: Event) -> None:
        self.events.append(event)

    @hookimpl
    def mlxfill_register_commands(self, app: Any) -> None:
        app.append(self.label)


class Silent:
    """Implements hooks and answers None."""

    @hookimpl
    def mlxfill_proposal_sources(self) -> None: ...

    @hookimpl
    def mlxfill_resolve_model(self) -> None: ...

    @hookimpl
    def mlxfill_delimiters(self) -> None: ...

    @hookimpl
    def mlxfill_generation_method(self) -> None: ...


def raising(error: BaseException) -> Any:
    class Raises:
        @hookimpl
        def mlxfill_proposal_sources(self) -> None:
            raise error

        @hookimpl
        def mlxfill_draft_kinds(self) -> None:
            raise error

        @hookimpl
        def mlxfill_logits_processors(self) -> None:
            raise error

        @hookimpl
        def mlxfill_resolve_model(self) -> None:
            raise error

        @hookimpl
        def mlxfill_cache_rewinder(self) -> None:
            raise error

        @hookimpl
        def mlxfill_delimiters(self) -> None:
            raise error

        @hookimpl
        def mlxfill_generation_method(self) -> None:
            raise error

        @hookimpl
        def mlxfill_observe(self) -> None:
            raise error

        @hookimpl
        def mlxfill_register_commands(self) -> None:
            raise error

    return Raises()


def ask_everything(manager: PluginManager, faults: list[Fault] | None) -> dict[str, Any]:
    """Call every hook once; labels of those who answered, by hook."""
    layer: Any = None
    found: Any = manager.cache_rewinder("entry", layer, layer, faults)
    delimiters = manager.delimiters(REQUEST, faults)
    method = manager.generation_method(layer, REQUEST, faults)
    app: Any = []
    manager.register_commands(app, faults)
    manager.observe(EVENT, faults)
    array: Any = 0
    return {
        "sources": [
            (plugin, cast("Source", source).name)
            for plugin, source in manager.proposal_sources(REQUEST, faults)
        ],
        "kinds": [(plugin, kind.name) for plugin, kind in manager.draft_kinds(faults)],
        "processors": [
            (plugin, processor(array, array)[0])
            for plugin, processor in manager.logits_processors(REQUEST, faults)
        ],
        "model": manager.resolve_model("any", faults),
        "rewinder": found and (found[0], found[1].label),
        "delimiters": delimiters,
        "method": method and method.name,
        "commands": app,
    }


EXPECTED = {
    "sources": [("first", "a0"), ("first", "a1"), ("second", "b0"), ("second", "b1")],
    "kinds": [("first", "a"), ("second", "b")],
    "processors": [("first", "a"), ("second", "b")],
    "model": Path("/models/a"),
    "rewinder": ("first", "a"),
    "delimiters": frozenset({1, ord("a")}),
    "method": "a",
    "commands": ["a", "b"],
}


def test_the_first_plugin_is_asked_first_and_keeps_its_name_beside_its_answers() -> None:
    manager = PluginManager([("first", Offers("a")), ("second", Offers("b"))])
    assert ask_everything(manager, None) == EXPECTED
    assert manager.faults == []
    assert manager.names == ("first", "second")


def test_order_is_that_of_the_list_even_against_tryfirst() -> None:
    class Pushy(Offers):
        @hookimpl(tryfirst=True)
        def mlxfill_proposal_sources(self, request: Request) -> list[Any]:
            return [Source("pushy")][: len(request.prompt_ids)]

    manager = PluginManager([("calm", Offers("a")), ("pushy", Pushy("p"))])
    assert [plugin for plugin, _ in manager.proposal_sources(REQUEST)] == ["calm", "calm", "pushy"]


@pytest.mark.parametrize(
    "error",
    [RuntimeError("no\nway" * 9999), SystemExit(1), KeyError("k"), GeneratorExit()],
    ids=lambda error: type(error).__name__,
)
def test_a_hook_that_raises_is_a_fault_and_the_others_answer(error: BaseException) -> None:
    plugins = [("bad", raising(error)), ("first", Offers("a")), ("second", Offers("b"))]
    manager = PluginManager(plugins)
    faults: list[Fault] = []
    assert ask_everything(manager, faults) == EXPECTED
    assert {fault.plugin for fault in faults} == {"bad"}
    assert len(faults) == 9
    assert {fault.where for fault in faults} == set(manager.hooks("bad"))
    assert all(fault.message.startswith(type(error).__name__) for fault in faults)
    assert not any("\n" in fault.message or len(fault.message) > 600 for fault in faults)
    assert manager.faults == []


def test_faults_go_to_the_manager_when_nobody_takes_them() -> None:
    manager = PluginManager([("bad", raising(RuntimeError("no")))])
    ask_everything(manager, None)
    assert len(manager.faults) == 9


def test_ctrl_c_in_a_hook_is_not_swallowed() -> None:
    manager = PluginManager([("bad", raising(KeyboardInterrupt()))])
    with pytest.raises(KeyboardInterrupt):
        manager.draft_kinds()


def test_answers_of_none_are_left_out() -> None:
    manager = PluginManager([("silent", Silent()), ("first", Offers("a")), ("second", Offers("b"))])
    assert ask_everything(manager, None) == EXPECTED


def test_nobody_is_asked_after_the_first_answer_that_counts() -> None:
    manager = PluginManager([("first", Offers("a")), ("bad", raising(RuntimeError()))])
    faults: list[Fault] = []
    assert manager.resolve_model("any", faults) == Path("/models/a")
    assert faults == []


@pytest.mark.parametrize(
    ("hook", "answer", "message"),
    [
        ("proposal_sources", 5, "returned 5, not a list"),
        ("proposal_sources", "ab", "returned 'ab', not a list"),
        (
            "proposal_sources",
            [5],
            "returned 5, which has no propose and no observe and no resolved",
        ),
        ("draft_kinds", ["x"], "returned 'x' among its draft kinds"),
        ("logits_processors", ["x"], "returned 'x' among its logits processors"),
        ("resolve_model", 5, "returned 5, not a path"),
        ("cache_rewinder", 5, "returned 5, which has no begin and no commit and no rewind"),
        ("delimiters", 5, "returned 5, not a list"),
        ("delimiters", [5, "x"], "returned 'x' among its delimiters, not a token id"),
        ("generation_method", 5, "returned 5, which has no name and no generate"),
    ],
)
def test_nonsense_is_a_fault(hook: str, answer: object, message: str) -> None:
    module = SimpleNamespace()

    def answering() -> object:
        return answer

    setattr(module, f"mlxfill_{hook}", hookimpl(answering))
    manager = PluginManager([("odd", module), ("first", Offers("a")), ("second", Offers("b"))])
    faults: list[Fault] = []
    assert ask_everything(manager, faults) == EXPECTED
    (fault,) = faults
    assert (fault.plugin, fault.where) == ("odd", f"mlxfill_{hook}")
    assert fault.message.startswith(f"TypeError: {message}")


def test_each_plugin_gets_its_own_settings() -> None:
    @frozen
    class Settings:
        k: int = 8

    class Configured:
        def __init__(self) -> None:
            self.seen: list[object] = []

        @hookimpl
        def mlxfill_settings(self) -> type:
            return Settings

        @hookimpl
        def mlxfill_proposal_sources(self, settings: object) -> None:
            self.seen.append(settings)

        @hookimpl
        def mlxfill_logits_processors(self, settings: object, request: object) -> None:
            self.seen += [settings, request]

    class Plain:
        seen: object = "not asked"

        @hookimpl
        def mlxfill_proposal_sources(self, settings: object) -> None:
            self.seen = settings

    one, two, plain = Configured(), Configured(), Plain()
    config = load_config({"plugins": {"two": {"k": 2}}})
    manager = PluginManager([("one", one), ("two", two), ("plain", plain)], config=config)
    manager.proposal_sources(REQUEST)
    manager.logits_processors(REQUEST)
    assert one.seen == [Settings(8), Settings(8), REQUEST]
    assert two.seen == [Settings(2), Settings(2), REQUEST]
    assert plain.seen is None
    assert PluginManager([("one", one)]).settings("one") == Settings()


def test_events_reach_every_observer() -> None:
    one, two = Offers("a"), Offers("b")
    manager = PluginManager([("one", one), ("two", two)])
    manager.observe(EVENT)
    assert one.events == two.events == [EVENT]


def test_hooks_are_listed_in_the_order_in_which_they_fire() -> None:
    manager = PluginManager([("all", Offers("a"))])
    assert manager.hooks("all") == (
        "mlxfill_register_commands",
        "mlxfill_resolve_model",
        "mlxfill_draft_kinds",
        "mlxfill_delimiters",
        "mlxfill_logits_processors",
        "mlxfill_cache_rewinder",
        "mlxfill_generation_method",
        "mlxfill_proposal_sources",
        "mlxfill_observe",
    )


def test_a_host_without_plugins_answers_nothing() -> None:
    manager = PluginManager()
    empty: dict[str, Any] = {"sources": [], "kinds": [], "processors": [], "commands": []}
    empty |= {"model": None, "rewinder": None, "method": None, "delimiters": frozenset()}
    assert ask_everything(manager, None) == empty


def test_a_private_host_refuses_what_is_misspelt() -> None:
    class Misspelt:
        @hookimpl
        def mlxfill_observer(self) -> None: ...

    with pytest.raises(PluginError) as caught:
        PluginManager([("odd", Misspelt())])
    assert str(caught.value) == (
        "plugin 'odd' has an unknown hook 'mlxfill_observer'; did you mean 'mlxfill_observe'?"
    )


def test_one_object_cannot_be_two_plugins() -> None:
    plugin = Offers("a")
    with pytest.raises(PluginError, match="plugin 'two' cannot be registered: ValueError"):
        PluginManager([("one", plugin), ("two", plugin)])
