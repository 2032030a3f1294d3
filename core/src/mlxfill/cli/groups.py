"""Options that several commands share, written once: an attrs class is a group of them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any, get_type_hints

import attrs

Command = Callable[..., None]


def grouped(command: Command) -> Command:
    """Let a parameter whose type is an attrs class stand for an option for each of its fields.

    ::

        @define
        class Place:
            city: Annotated[str, typer.Option(help="Where.")] = "Lima"

        @app.command()
        @grouped
        def weather(place: Place) -> None: ...      # weather --city Oslo
    """
    hints = get_type_hints(command, include_extras=True)
    names = list(inspect.signature(command).parameters)
    groups = {name: hints[name] for name in names if attrs.has(hints[name])}

    @functools.wraps(command)
    def run(**given: Any) -> None:  # noqa: ANN401 - whatever the options hold
        for name, group in groups.items():
            given[name] = group(**{f.name: given.pop(f.name) for f in attrs.fields(group)})
        command(**given)

    parameters = [p for name in names for p in _parameters(command, name, hints, groups)]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    vars(run)["__signature__"] = inspect.Signature(parameters)
    del vars(run)["__wrapped__"]  # typer would look through it
    return run


def _parameters(
    command: Command, name: str, hints: dict[str, Any], groups: dict[str, Any]
) -> Iterator[inspect.Parameter]:
    """The parameters that typer sees in the place of one of the command's own."""
    if name not in groups:
        default = inspect.signature(command).parameters[name].default
        yield inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hints[name]
        )
        return
    for field, hint in get_type_hints(groups[name], include_extras=True).items():
        default = getattr(attrs.fields(groups[name]), field).default
        default = inspect.Parameter.empty if default is attrs.NOTHING else default
        yield inspect.Parameter(
            field, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint
        )
