"""The hooks, in the order in which they fire.

Hooks fire when the command line or an engine starts, when a request opens and when
it ends.  The decode loop itself never calls a hook: it calls the objects that hooks
returned.  Mark an implementation with ``mlxfill.hookimpl``; an argument that you do
not need may be left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pluggy

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from pathlib import Path

    import mlx.core as mx
    import typer

    from mlxfill.contracts import (
        CacheRewinder,
        Constraint,
        DraftKind,
        Event,
        GenerationMethod,
        LayerReplay,
        ProposalSource,
        Request,
        TargetView,
    )

PROJECT = "mlxfill"
"""Entry-point group and pluggy project name."""

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)

# --- start of the command line ---------------------------------------------------


@hookspec
def mlxfill_register_commands(app: typer.Typer) -> None:
    """Add subcommands to the ``mlxfill`` command.

    ``mlxfill.grouped`` lets several commands share options that are written once;
    ``mlxfill.check_output`` tries a file for results before the work begins, and
    ``mlxfill.replacing`` writes one whole or not at all.  What goes to
    ``mlxfill.standard_output`` is as wide as the terminal; ``mlxfill.fit_table`` leaves columns
    out of a table where they do not fit, and ``mlxfill.painted`` colours tokens by their origin.

    :param app: the top-level application.
    """


# --- start of an engine ----------------------------------------------------------


@hookspec
def mlxfill_settings() -> type:
    """Declare this plugin's table in the config file.

    :returns: an attrs class; ``[plugins.NAME]`` is structured into it, and the instance is
        handed to the plugin's other hooks as ``settings``.
    """
    raise NotImplementedError


@hookspec(firstresult=True)
def mlxfill_resolve_model(name: str) -> Path | None:
    """Turn a model name into a local folder.  First answer that is not None wins.

    :param name: what the user wrote, never an existing path.
    """


@hookspec
def mlxfill_draft_kinds() -> Sequence[DraftKind]:
    """Declare the kinds of drafter that this plugin can load."""
    raise NotImplementedError


# --- a request opens -------------------------------------------------------------


@hookspec(firstresult=True)
def mlxfill_delimiters(request: Request) -> Collection[int] | None:
    """Name the ids that end a value in the replies to a request.  First answer wins.

    Copied spans are cut after the first of them (``Proposal.delimiter_bound``).

    :param request: the frozen request, its ``delimiters`` still those that the caller gave; the
        other hooks get it with the answer added.
    """


@hookspec(firstresult=True)
def mlxfill_constraint(request: Request, settings: Any) -> Constraint | None:  # noqa: ANN401
    """Hold the reply to ``request.schema``.  First answer that is not None wins.

    Only asked when a schema is given; when nobody answers, the request is refused.

    :param request: the frozen request; its ``schema`` is not None.
    :param settings: the instance of this plugin's settings class, or None.
    :raises InputError: the schema is wrong or uses what the plugin does not know; the caller gets
        this error.
    """


@hookspec
def mlxfill_logits_processors(
    request: Request,
    settings: Any,  # noqa: ANN401
) -> Sequence[Callable[[mx.array, mx.array], mx.array]] | None:
    """Make this plugin's logits processors for one request, in mlx-lm's signature.

    Each takes ``(tokens [L], logits [1, V])`` and returns logits of the same shape.
    """


@hookspec(firstresult=True)
def mlxfill_cache_rewinder(
    entry: object, layer: LayerReplay, target: TargetView
) -> CacheRewinder | None:
    """Make a rewinder for one cache entry.  First answer that is not None wins.

    Asked for each entry that the core does not know, and once more when an engine starts, which
    tries whether tokens can be taken back.

    :param entry: an entry of mlx-lm's prompt cache (or a part of a composite one).
    :param layer: replays the decoder layer that fills this entry.
    :param target: the bound model.
    """


@hookspec(firstresult=True)
def mlxfill_generation_method(
    target: TargetView,
    request: Request,
    settings: Any,  # noqa: ANN401
) -> GenerationMethod | None:
    """Generate this request in another way than token by token.  First answer wins.

    Nobody drafts or proposes for such a request.

    :param target: the bound model; ``target.path`` is its folder, whose ``config.json`` tells what
        kind of model it is.
    :param request: the frozen request.
    :param settings: the instance of this plugin's settings class, or None.
    """


@hookspec
def mlxfill_proposal_sources(request: Request, settings: Any) -> Sequence[ProposalSource] | None:  # noqa: ANN401
    """Make this plugin's sources for one request.

    :param request: the frozen request.
    :param settings: the instance of this plugin's settings class, or None.
    """


# --- during and after a request --------------------------------------------------


@hookspec
def mlxfill_observe(event: Event) -> None:
    """Receive trace events.

    Fired when a request opens, faults and finishes, and per round when tracing is on.
    """
