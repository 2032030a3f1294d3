"""A list of requests, answered together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mlxfill.errors import InputError, MlxfillError
from mlxfill.request.options import OPTION_NAMES, SAMPLING_NAMES, option_meant

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mlxfill.batch.scheduler import RowScheduler
    from mlxfill.decode.run import Run
    from mlxfill.request.results import Piece, Result

KEYS = ("prompt", "messages", "tools")
"""What a request holds besides options."""


def generate_batch(
    rows: RowScheduler,
    requests: Iterable[Mapping[str, Any]],
    stream: Callable[..., Run],
    on_piece: Callable[[int, Piece], None] | None,
) -> list[Result]:
    """As ``Engine.generate_batch``, whose ``stream`` opens a request."""
    runs: list[Run] = []
    try:
        for number, request in enumerate(requests):
            runs.append(open_request(stream, request, number))
            rows.add(runs[-1])
        numbers = {id(run): number for number, run in enumerate(runs)}
        while len(rows):
            for run, piece in rows.round():
                if on_piece is not None:
                    on_piece(numbers[id(run)], piece)
    finally:
        rows.close()
    return [run.result() for run in runs]


def open_request(stream: Callable[..., Run], request: Mapping[str, Any], number: int) -> Run:
    """A run that has computed nothing.  Errors name the request's ``number``."""
    try:
        return _opened(stream, request)
    except MlxfillError as error:
        message = f"request {number}: {error}"
        raise type(error)(message) from error


def _opened(stream: Callable[..., Run], request: Mapping[str, Any]) -> Run:
    if not isinstance(request, Mapping):
        message = f"a request is a mapping with a prompt or messages, not {request!r}"
        raise InputError(message)
    options = dict(request)
    unknown = next((n for n in options if n not in (*KEYS, *OPTION_NAMES, *SAMPLING_NAMES)), None)
    if unknown is not None:
        message = f"unknown key {unknown!r}{option_meant(str(unknown), *KEYS)}"
        raise InputError(message)
    prompts = [options.pop(name) for name in ("prompt", "messages") if name in options]
    if len(prompts) != 1:
        message = "give either prompt or messages"
        raise InputError(message)
    return stream(prompts[0], **options)
