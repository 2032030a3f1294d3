"""Whether a JSON schema is one, by the meta-schema of its draft.

llguidance passes over what it cannot read, such as ``properties`` in a list, and would hold the
reply to less than was meant.  jsonschema-rs (https://github.com/Stranger6667/jsonschema) checks the
largest and deepest schema in milliseconds, and looks up nothing that a schema refers to.
"""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Any

from mlxfill import InputError
from mlxfill_constrain.parts import parts
from mlxfill_constrain.tree import nodes, target

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jsonschema_rs import ValidationError, Validator

    from mlxfill import Schema

DRAFTS = {
    "http://json-schema.org/draft-04/schema": "Draft4Validator",
    "http://json-schema.org/draft-06/schema": "Draft6Validator",
    "http://json-schema.org/draft-07/schema": "Draft7Validator",
    "https://json-schema.org/draft/2019-09/schema": "Draft201909Validator",
    "https://json-schema.org/draft/2020-12/schema": "Draft202012Validator",
}
"""What ``$schema`` may say, and who knows it."""
LATEST = list(DRAFTS)[-1]
"""What is meant where ``$schema`` says nothing of these."""
TYPES = ("array", "boolean", "integer", "null", "number", "object", "string")
_VALUE = "{value}"
"""Stands in messages for a value, which may be large."""
_LONGEST = 100


def check_schema(schema: Schema) -> None:
    """Raise ``InputError`` with the place and the reason for what is no JSON schema."""
    for _, _, part in parts(schema):
        validator = _validator(draft_of(part))
        _check(part, validator)
        pointed = {id(each): each for each in (target(part, node) for node in nodes(part))}
        pointed.pop(id(part), None)
        for each in pointed.values():
            if isinstance(each, dict):
                _check(each, validator)


def draft_of(schema: Mapping[str, Any]) -> str:
    """What ``$schema`` says, if it is one of ``DRAFTS``."""
    said = schema.get("$schema")
    named = said.removesuffix("#") if isinstance(said, str) else ""
    return named if named in DRAFTS else LATEST


def _check(part: Mapping[str, Any], validator: Validator) -> None:
    try:
        error = next(filter(_counts, validator.iter_errors(part)), None)
    except ValueError as error:  # too deep to tell what is wrong, or no text
        raise InputError(f"schema cannot be used: {error}") from None
    if error is not None:
        error = _innermost(error)
        where = _place(error.instance_path)
        raise InputError(f"schema is no JSON schema: {where}{_reason(error)}") from None


def _counts(error: ValidationError) -> bool:
    """Whether it is a mistake: ``allOf`` of nothing is clear, though the drafts rule it out."""
    return bool(error.instance != [] or list(error.instance_path)[-1:] != ["allOf"])


@cache
def _validator(draft: str) -> Validator:
    import jsonschema_rs

    made: type[Validator] = getattr(jsonschema_rs, DRAFTS[draft])
    # Whether a pattern is one is for llguidance to say: it has a syntax of its own.
    return made({"$ref": draft}, validate_formats=False, mask=_VALUE, offline=True)


def _innermost(error: ValidationError) -> ValidationError:
    """The error as deep as possible inside a value that may be of one form or another."""
    while True:
        forms: list[list[ValidationError]] = getattr(error.kind, "context", [])
        inner = [each for form in forms for each in form]
        deepest = max(inner, key=lambda each: len(each.instance_path), default=error)
        if len(deepest.instance_path) <= len(error.instance_path):
            return error
        error = deepest


def _place(path: Sequence[str | int]) -> str:
    written = json.dumps(".".join(map(str, path)))[1:-1]
    return (
        f"{written if len(written) <= _LONGEST else '...' + written[-_LONGEST:]}: " if path else ""
    )


def _reason(error: ValidationError) -> str:
    shown = json.dumps(error.instance)
    shown = shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]}..."
    if error.instance_path[-1:] == ["type"]:
        return f"must be {', '.join(TYPES[:-1])} or {TYPES[-1]}, or a list of these, not {shown}"
    return error.message.replace(_VALUE, shown)
