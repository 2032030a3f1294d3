"""A plugin that is made in a test, and an engine to seat it in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import define, field

from mlxfill import hookimpl
from mlxfill_testing.drafters import ScriptedDrafter
from mlxfill_testing.script import Script
from mlxfill_testing.sources import ScriptedSource
from mlxfill_testing.tokenizer import tiny_tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import mlx.core as mx

    from mlxfill import (
        CacheRewinder,
        DraftKind,
        Engine,
        Event,
        GenerationMethod,
        LayerReplay,
        ProposalSource,
        Request,
        Result,
        TargetView,
    )

    MakeSource = Callable[[Request], ProposalSource]
    LogitsProcessor = Callable[[mx.array, mx.array], mx.array]


@define(kw_only=True)
class Guest:
    """A plugin that hands out what it was given.

    ``sources`` are made for each request; those made are kept in ``seated``, trace events in
    ``events``.
    """

    name: str = "guest"
    sources: Sequence[MakeSource] = ()
    drafter: ScriptedDrafter | None = None
    origin: str = "draft"
    processors: Sequence[LogitsProcessor] = ()
    rewinder: Callable[[object, LayerReplay], CacheRewinder | None] | None = None
    method: GenerationMethod | None = None
    seated: list[Any] = field(factory=list)
    events: list[Event] = field(factory=list)

    @classmethod
    def offering(cls, truth: Sequence[int], accuracy: float, **more: Any) -> Guest:  # noqa: ANN401
        """A guest with one scripted source.

        :param truth: prompt and continuation; ``accuracy``: how often the source guesses right.
        :param more: further fields of ``ScriptedSource``; ``seed`` of its script.
        """
        script = Script(truth, accuracy, more.pop("seed", 0))
        return cls(sources=[lambda r: ScriptedSource(request=r, script=script, **more)])

    @classmethod
    def drafting(cls, truth: Sequence[int], accuracy: float, **more: Any) -> Guest:  # noqa: ANN401
        """A guest with a scripted drafter; ``more``: further fields of ``ScriptedDrafter``."""
        script = Script(truth, accuracy, more.pop("seed", 0))
        return cls(drafter=ScriptedDrafter(script=script, **more))

    @hookimpl
    def mlxfill_proposal_sources(self, request: Request) -> list[ProposalSource]:
        """New sources."""
        __tracebackhide__ = True  # what fails in a source is the fault of the test's own code
        made: list[ProposalSource] = []
        for make in self.sources:  # a comprehension would be a frame of its own
            made.append(make(request))  # noqa: PERF401
        self.seated += made
        return made

    @hookimpl
    def mlxfill_draft_kinds(self) -> list[DraftKind]:
        """The drafter."""
        return [self.drafter.kind(self.origin)] if self.drafter else []

    @hookimpl
    def mlxfill_logits_processors(self) -> list[LogitsProcessor]:
        """The processors."""
        return list(self.processors)

    @hookimpl
    def mlxfill_cache_rewinder(self, entry: object, layer: LayerReplay) -> CacheRewinder | None:
        """What ``rewinder`` makes."""
        __tracebackhide__ = True
        return self.rewinder(entry, layer) if self.rewinder else None

    @hookimpl
    def mlxfill_generation_method(
        self,
        target: TargetView,  # noqa: ARG002 - a hook's arguments are found by name
        request: Request,  # noqa: ARG002
    ) -> GenerationMethod | None:
        """Another way to generate."""
        return self.method

    @hookimpl
    def mlxfill_observe(self, event: Event) -> None:
        """Keep the event."""
        self.events.append(event)


def engine_with(
    model: Any,  # noqa: ANN401 - an mlx-lm model
    *guests: Guest,
    tokenizer: Any = None,  # noqa: ANN401
    trusted: Sequence[str] = (),
    gate: bool = False,
    config: Mapping[str, Any] | None = None,
    **options: Any,  # noqa: ANN401 - passed to Engine
) -> Engine:
    """An engine around ``model`` in which only ``guests`` are plugged, the first with priority.

    Nothing is read from config files.  The tokenizer is ``tiny_tokenizer()`` unless given.

    :param trusted: names of guests whose asserts count.
    :param gate: whether the cost gate decides; otherwise every offer is used as far as it goes.
    """
    from mlxfill import Engine, PluginManager, load_config

    tables = {"trust": {"assert": list(trusted)}, "gate": {"enabled": gate}, **(config or {})}
    settled = load_config(tables)
    manager = PluginManager([(guest.name, guest) for guest in guests], config=settled)
    if any(guest.drafter for guest in guests):
        options.setdefault("draft_kind", "scripted")
    tokenizer = tiny_tokenizer() if tokenizer is None else tokenizer
    return Engine(model, tokenizer, plugins=manager, config=settled, **options)


def plain(model: Any, prompt: Any, count: int, **options: Any) -> Result:  # noqa: ANN401
    """What an engine without plugins writes: the judge of sampled output.

    Exactly ``count`` tokens unless ``options`` end it earlier: no id ends the reply unless
    ``eos_token_ids`` says so.
    """
    return _written((model,), prompt, count, options)


def plugged(model: Any, guest: Guest, prompt: Any, count: int, **options: Any) -> Result:  # noqa: ANN401
    """What an engine with one guest writes; as ``plain`` otherwise."""
    return _written((model, guest), prompt, count, options)


def _written(seated: tuple[Any, ...], prompt: Any, count: int, options: dict[str, Any]) -> Result:  # noqa: ANN401
    with engine_with(*seated) as engine:
        return engine.generate(prompt, **{"max_tokens": count, "eos_token_ids": (), **options})


def reference_tokens(
    model: Any,  # noqa: ANN401 - an mlx-lm model
    prompt: Sequence[int],
    max_tokens: int,
    **options: Any,  # noqa: ANN401
) -> list[int]:
    """What mlx-lm's own ``generate_step`` writes: the judge of greedy decoding.

    :param options: keywords of ``mlx_lm.generate.generate_step``.
    """
    import mlx.core as mx
    from mlx_lm.generate import generate_step

    steps = generate_step(mx.array(list(prompt)), model, max_tokens=max_tokens, **options)
    return [int(token) for token, _ in steps]
