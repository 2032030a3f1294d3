"""From the bytes of a request for a message to a checked body."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from pydantic import ValidationError

from mlxfill_serve.anthropic.bodies import CountBody
from mlxfill_serve.dialects.hearing import Heard
from mlxfill_serve.errors import ApiError
from mlxfill_serve.reading import parse, received, refusal

if TYPE_CHECKING:
    from starlette.requests import Request

    from mlxfill_serve.settings import ServeSettings

B = TypeVar("B", bound=CountBody)


async def read_message_body(request: Request, kind: type[B], settings: ServeSettings) -> B:
    """The body of a request; what nothing heeds is told, as Anthropic's clients send much.

    :raises ApiError: it is none, or (``strict``) holds an unknown field.
    """
    value = parse(await received(request, settings.max_body, settings.timeout))
    try:
        body = kind.model_validate(value)
    except ValidationError as error:
        raise refusal(error, kind) from None
    unknown = [name for name, given in (body.model_extra or {}).items() if given]
    if unknown and settings.strict:
        said = f"unknown field {unknown[0][:80]!r}"
        raise ApiError(400, said, param=unknown[0][:80], code="unknown_parameter")
    request.state.heard = Heard({}).and_ignored(unknown)
    return body
