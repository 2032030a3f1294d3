"""Every hook as a typed method."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from mlxfill.errors import InputError
from mlxfill.plugins import answers
from mlxfill.plugins.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import typer

    from mlxfill.contracts import (
        CacheRewinder,
        Constraint,
        DraftKind,
        Event,
        Fault,
        GenerationMethod,
        LayerReplay,
        ProposalSource,
        Request,
        TargetView,
    )

T = TypeVar("T")


class Hooks:
    """Asks the plugins, the one with the highest priority first.

    Of the hooks that every plugin may answer, each value stands beside the name of its plugin; of
    the others the first answer that is not None counts.  A plugin that raises or returns nonsense
    becomes a ``Fault`` in the list ``faults`` that the caller gave, or in ``self.faults``; the
    others are asked all the same.
    """

    def __init__(self) -> None:
        self.faults: list[Fault] = []
        self._registry = Registry()

    # --- start of the command line ------------------------------------------------

    def register_commands(self, app: typer.Typer, faults: list[Fault] | None = None) -> None:
        """Let the plugins add their subcommands to ``app``."""
        for _ in self._ask("mlxfill_register_commands", answers.anything, faults, app=app):
            pass

    # --- start of an engine -------------------------------------------------------

    def resolve_model(self, name: str, faults: list[Fault] | None = None) -> Path | None:
        """The folder of a model, from the first plugin that knows its name."""
        return self._first("mlxfill_resolve_model", answers.folder, faults, name=name)

    def draft_kinds(self, faults: list[Fault] | None = None) -> list[tuple[str, DraftKind]]:
        """Every kind of drafter.  ``DraftKind.load`` takes the settings of the plugin beside it."""
        return self._gather("mlxfill_draft_kinds", answers.draft_kinds, faults)

    def cache_rewinder(
        self,
        entry: object,
        layer: LayerReplay,
        target: TargetView,
        faults: list[Fault] | None = None,
    ) -> tuple[str, CacheRewinder] | None:
        """A rewinder for a cache entry, from the first plugin that has one."""
        hook, read = "mlxfill_cache_rewinder", answers.cache_rewinder
        return next(self._ask(hook, read, faults, entry=entry, layer=layer, target=target), None)

    # --- a request opens ----------------------------------------------------------

    def delimiters(self, request: Request, faults: list[Fault] | None = None) -> frozenset[int]:
        """Ids that end a value, from the first plugin that knows them; empty when none does."""
        hook, read = "mlxfill_delimiters", answers.delimiters
        return self._first(hook, read, faults, request=request) or frozenset()

    def constraint(
        self, request: Request, faults: list[Fault] | None = None
    ) -> tuple[str, Constraint] | None:
        """What holds a reply to its schema, from the first plugin that can.

        :raises InputError: a plugin refuses the schema.
        """
        faults = self.faults if faults is None else faults
        hook, read, given = "mlxfill_constraint", answers.constraint, {"request": request}
        return next(self._registry.ask(hook, read, faults, given, passing=(InputError,)), None)

    def generation_method(
        self, target: TargetView, request: Request, faults: list[Fault] | None = None
    ) -> GenerationMethod | None:
        """Another way to generate, from the first plugin that has one."""
        hook, read = "mlxfill_generation_method", answers.generation_method
        return self._first(hook, read, faults, target=target, request=request)

    def proposal_sources(
        self, request: Request, faults: list[Fault] | None = None
    ) -> list[tuple[str, ProposalSource]]:
        """The sources for one request, by priority."""
        hook, read = "mlxfill_proposal_sources", answers.proposal_sources
        return self._gather(hook, read, faults, request=request)

    def logits_processors(
        self, request: Request, faults: list[Fault] | None = None
    ) -> list[tuple[str, answers.LogitsProcessor]]:
        """The logits processors for one request, by priority."""
        hook, read = "mlxfill_logits_processors", answers.logits_processors
        return self._gather(hook, read, faults, request=request)

    # --- during and after a request -----------------------------------------------

    def observe(self, event: Event, faults: list[Fault] | None = None) -> None:
        """Hand a trace event to every plugin that wants it."""
        for _ in self._ask("mlxfill_observe", answers.anything, faults, event=event):
            pass

    # ------------------------------------------------------------------------------

    def _ask(
        self, hook: str, read: Callable[[Any], T], faults: list[Fault] | None, **arguments: object
    ) -> Iterator[tuple[str, T]]:
        faults = self.faults if faults is None else faults
        return self._registry.ask(hook, read, faults, arguments)

    def _first(
        self, hook: str, read: Callable[[Any], T], faults: list[Fault] | None, **arguments: object
    ) -> T | None:
        """The first answer; later plugins are not asked."""
        return next((answer for _, answer in self._ask(hook, read, faults, **arguments)), None)

    def _gather(
        self,
        hook: str,
        read: Callable[[Any], list[T]],
        faults: list[Fault] | None,
        **arguments: object,
    ) -> list[tuple[str, T]]:
        """As ``_ask``, for hooks whose answer is a list."""
        found = self._ask(hook, read, faults, **arguments)
        return [(plugin, thing) for plugin, things in found for thing in things]
