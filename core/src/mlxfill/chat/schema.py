"""The option ``schema``: the forms in which it may be given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlxfill import exactjson
from mlxfill.contracts import Schema
from mlxfill.errors import InputError

ANY_OBJECT = {"type": "object"}
FORMS = 'a JSON schema, {"type": "json_object"}, {"regex": ...} or {"lark": ...}'


def as_schema(value: object) -> Schema | None:
    """A ``Schema`` from any of its forms.

    Mappings are taken as OpenAI's ``response_format`` when their ``type`` is one of its words,
    as a regular expression or Lark grammar when ``regex`` or ``lark`` is their only key, else as
    a JSON schema.

    :raises InputError: none of these, or no JSON.
    """
    if value is None or isinstance(value, Schema):
        return value
    if not isinstance(value, Mapping):
        raise InputError(f"schema must be {FORMS}, not {_short(value)}")
    match value.get("type"):
        case "text":
            return None
        case "json_object":
            return _json(ANY_OBJECT)
        case "json_schema":
            return _json(_wrapped(value))
    if len(value) == 1:
        for kind in ("regex", "lark"):
            if kind in value:
                return Schema(kind, _text(kind, value[kind]))
    return _json(value)


def _wrapped(value: Mapping[Any, Any]) -> Mapping[Any, Any]:
    inner = value.get("json_schema")
    schema = inner.get("schema") if isinstance(inner, Mapping) else None
    if not isinstance(schema, Mapping):
        raise InputError(f"schema.json_schema.schema must be a JSON schema, not {_short(schema)}")
    return schema


def _json(value: object) -> Schema:
    try:
        return Schema("json", exactjson.dumps(value, allow_nan=False, ensure_ascii=False))
    except RecursionError:
        raise InputError("schema is nested too deeply") from None
    except (TypeError, ValueError) as error:
        raise InputError(f"schema is no JSON: {error}") from None


def _text(kind: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise InputError(f"schema.{kind} must be a non-empty string, not {_short(value)}")
    return value


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."  # noqa: PLR2004 - fits a line
