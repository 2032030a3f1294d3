"""From the bytes of a request to a checked body."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NoReturn, TypeGuard, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from mlxfill import exactjson
from mlxfill_serve.dialects.hearing import NAMES, Heard, hear, meant
from mlxfill_serve.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pydantic_core import ErrorDetails
    from starlette.requests import Request

    from mlxfill_serve.settings import ServeSettings

B = TypeVar("B", bound=BaseModel)

MAX_DEPTH = 64
"""Deepest nesting of lists and objects in a body."""


async def read_body(
    request: Request,
    kind: type[B],
    limit: int,
    timeout: float,  # noqa: ASYNC109
    *,
    strict: bool = False,
) -> B:
    """The body of a request as an instance of ``kind``; ``request.state.heard`` says how it came.

    :param limit: most bytes.
    :param timeout: seconds that a client may take to send it.
    :param strict: refuse fields of other servers.
    :raises ApiError: 413 for a longer one, 408 for a slower one, 400 for what is no JSON or no
        ``kind``.
    """
    raw = await received(request, limit, timeout)
    request.state.heard = heard = hear(parse(raw), kind, strict=strict)
    try:
        body = kind.model_validate(_with_one_unknown(heard.body, kind))
    except ValidationError as error:
        raise refusal(error, kind) from None
    request.state.heard = heard.read_as(body)
    return body


async def read_loosely(request: Request, kind: type[B], settings: ServeSettings) -> B:
    """The body of a request of clients that send much which nothing heeds: that is told.

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


async def received(request: Request, limit: int, timeout: float) -> bytes:  # noqa: ASYNC109
    """The bytes of a body.  Raises ``ApiError``: 413 for too many, 408 for too slow ones."""
    try:
        async with asyncio.timeout(timeout):
            return await read_bytes(request, limit)
    except TimeoutError:
        said = f"the body did not arrive within {timeout:g} s"
        raise ApiError(408, said, code="timeout", headers={"Connection": "close"}) from None


def _with_one_unknown(value: dict[str, Any], kind: type[BaseModel]) -> dict[str, Any]:
    """A body without unknown fields after the first: there may be a million."""
    unknown = next((key for key in value if key not in kind.model_fields), None)
    return {k: v for k, v in value.items() if k in kind.model_fields or k == unknown}


async def read_bytes(request: Request, limit: int) -> bytes:
    """At most ``limit`` bytes; more are not even kept."""
    told = request.headers.get("content-length", "")
    if told.isdecimal() and int(told) > limit:
        raise _too_long(limit)
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > limit:
            raise _too_long(limit)
        parts.append(part)
    return b"".join(parts)


def _too_long(limit: int) -> ApiError:
    said = f"the body is longer than {limit} bytes"
    return ApiError(413, said, code="request_too_large", headers={"Connection": "close"})


def parse(raw: bytes) -> dict[str, Any]:
    """A JSON object, of text that is text and numbers that are numbers."""
    try:
        value = exactjson.loads(raw, parse_constant=_no_number)
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:
        raise ApiError(400, f"the body is not JSON: {error}", code="invalid_json") from None
    if not isinstance(value, dict):
        kind = type(value).__name__
        raise ApiError(400, f"the body must be a JSON object, not a {kind}", code="invalid_json")
    _check(value)
    return value


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON number")


def _check(value: object) -> None:
    """Refuse what is nested too deeply and text with half a surrogate pair (no UTF-8 has it)."""
    level: list[object] = [value]
    for _ in range(MAX_DEPTH):
        below: list[object] = []
        for item in level:
            if isinstance(item, dict):
                below += item.keys()
                below += item.values()
            elif isinstance(item, list):
                below += item
            elif isinstance(item, str):
                _check_text(item)
            elif isinstance(item, float) and item in (float("inf"), float("-inf")):
                raise ApiError(400, "the body holds a number beyond a double's range")
        if not below:
            return
        level = below
    raise _too_deep()


def _check_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ApiError(400, "the body holds a lone surrogate, which is no text") from None


def _too_deep() -> ApiError:
    return ApiError(400, f"the body is nested deeper than {MAX_DEPTH} levels", code="invalid_json")


def refusal(error: ValidationError, kind: type[BaseModel]) -> ApiError:
    """The first thing that is wrong, in one line."""
    first = _telling(error.errors(include_url=False, include_context=False))
    parts = [str(part) for part in first["loc"] if not _is_branch(part)]
    place = ".".join(parts)
    if first["type"] == "extra_forbidden":
        *above, name = parts
        known = [*_keys(kind, above), *(() if above else NAMES)]
        near = [meant(name)] if meant(name) else get_close_matches(name, known, 1)
        hint = f"; did you mean {'.'.join([*above, near[0]])!r}?" if near else ""
        said = f"unknown field {_short(place)!r}{hint}"
        return ApiError(400, said, param=_short(place), code="unknown_parameter")
    if first["type"] == "missing":
        return ApiError(400, f"{place} is missing", param=place, code="missing_required_parameter")
    if first["type"] == "too_short":
        return ApiError(400, f"{place} is empty", param=place, code="invalid_value")
    reason = first["msg"][:1].lower() + first["msg"][1:]
    said = f"{_short(place)}: {reason}, not {_short(repr(first['input']))}"
    return ApiError(400, said, param=_short(place), code="invalid_value")


@contextmanager
def as_refusals(kind: type[BaseModel]) -> Iterator[None]:
    """What is wrong with a ``kind`` that was made of another body is the client's mistake."""
    try:
        yield
    except ValidationError as error:
        raise refusal(error, kind) from None


def _keys(kind: type[BaseModel], above: Sequence[str]) -> list[str]:
    """The keys of the object at a place in a body."""
    for name in above:
        inner = [k for k in get_args(kind.model_fields[name].annotation) if _is_body(k)]
        kind = inner[0]
    return list(kind.model_fields)


def _is_body(kind: object) -> TypeGuard[type[BaseModel]]:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _telling(errors: list[ErrorDetails]) -> ErrorDetails:
    """Of a value that may be of several kinds, what the kind nearest to it misses."""
    return max(errors, key=lambda e: len(e["loc"])) if len(errors) > 1 else errors[0]


def _is_branch(part: int | str) -> bool:
    """Whether a part of a place names a branch of a union rather than a key."""
    return isinstance(part, str) and (part[:1].isupper() or "[" in part or part in _BRANCHES)


_BRANCHES = frozenset({"str", "int", "float", "bool", "dict"})


def _short(text: str, most: int = 80) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."
