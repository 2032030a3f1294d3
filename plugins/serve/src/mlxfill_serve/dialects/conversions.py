"""Values that other servers put otherwise.

Each takes a value and the name that it came under, and gives pairs of our field, in chat's words,
and its value.  A field ``None`` names what nothing heeds.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from mlxfill import exactjson
from mlxfill_serve.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Callable

Heard = list[tuple[str | None, Any]]
"""Our fields and their values; beside None the name of what is left out."""

SWITCH = "chat_template_kwargs.enable_thinking"
FORMAT = "response_format"
OFF = frozenset({"disabled", "none", "off", "false"})
ON = frozenset({"enabled", "adaptive", "auto", "on", "true"})
ANY_LENGTH = (1 << 31) - 1


def same(target: str) -> Callable[[Any, str], Heard]:
    """The same value under our name."""
    return lambda value, _: [(target, value)]


def length(value: Any, _: str) -> Heard:  # noqa: ANN401
    """-2: until the context is full."""
    return [("max_tokens", -1 if value == -2 else value)]  # noqa: PLR2004 - llama.cpp's


def repeat_last_n(value: Any, _: str) -> Heard:  # noqa: ANN401
    """-1: as many tokens as there are.  0: no penalty at all."""
    if value == 0 and not isinstance(value, bool):
        return [("repetition_penalty", 1.0)]
    return [("repetition_context_size", ANY_LENGTH if value == -1 else value)]


def do_sample(value: Any, name: str) -> Heard:  # noqa: ANN401
    """False: the likeliest token, always."""
    if not isinstance(value, bool):
        raise _wrong(name, "true or false", value)
    return [] if value else [("temperature", 0)]


def n_probs(value: Any, name: str) -> Heard:  # noqa: ANN401
    """The likeliest tokens at each position; 0: none are told."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise _wrong(name, "a whole number", value)
    return [("logprobs", True), ("top_logprobs", value)] if value else []


# --- thinking -----------------------------------------------------------------------------


def thinking(value: Any, name: str) -> Heard:  # noqa: ANN401
    """A switch, a word, or an object with a ``type`` and a budget."""
    if isinstance(value, bool):
        return [(SWITCH, value)]
    if isinstance(value, dict):
        kind = value.get("type", "enabled")
        if not isinstance(kind, str) or kind not in OFF | ON:
            raise _wrong(f"{name}.type", "enabled or disabled", kind)
        others = [(None, f"{name}.{key}") for key in value if key != "type"]
        return [(SWITCH, kind not in OFF), *others]
    if not isinstance(value, str):
        raise _wrong(name, "true or false, an effort, or an object with a type", value)
    if value in OFF | ON:
        return [(SWITCH, value not in OFF)]
    return [("reasoning_effort", value)]


def exclude(value: Any, name: str) -> Heard:  # noqa: ANN401
    """True: thoughts are no part of the answer."""
    if not isinstance(value, bool):
        raise _wrong(name, "true or false", value)
    return [("include_reasoning", not value)]


def reasoning_format(value: Any, name: str) -> Heard:  # noqa: ANN401
    """``hidden`` leaves thoughts out; all words for a field of their own are what there is."""
    if value == "hidden":
        return [("include_reasoning", False)]
    return [] if value in {"auto", "parsed", "deepseek"} else [(None, name)]


# --- what a reply must be -----------------------------------------------------------------


def json_schema(value: Any, name: str) -> Heard:  # noqa: ANN401
    """A JSON schema, as an object or as its text."""
    schema = value
    if isinstance(value, str):
        try:
            schema = exactjson.loads(value)
        except ValueError:
            raise _wrong(name, "a JSON schema", value) from None
    if not isinstance(schema, dict):
        raise _wrong(name, "a JSON schema", value)
    if set(schema) == {"name", "schema"} or set(schema) == {"name", "schema", "strict"}:
        schema = schema["schema"]  # as OpenAI wraps it
    return [(FORMAT, _schema(schema))]


def json_object(value: Any, name: str) -> Heard:  # noqa: ANN401
    """Any JSON object."""
    if not isinstance(value, bool):
        raise _wrong(name, "true or false", value)
    return [(FORMAT, {"type": "json_object"})] if value else []


def regex(value: Any, name: str) -> Heard:  # noqa: ANN401
    """A regular expression for the whole reply."""
    return [(FORMAT, {"regex": _text(value, name)})]


def choice(value: Any, name: str) -> Heard:  # noqa: ANN401
    """One of some texts."""
    texts = isinstance(value, list) and all(isinstance(each, str) and each for each in value)
    if not texts or not value:
        raise _wrong(name, "a list of texts", value)
    either = " | ".join(json.dumps(each, ensure_ascii=False) for each in value)
    return [(FORMAT, {"lark": f"start: {either}\n"})]


def grammar(value: Any, name: str) -> Heard:  # noqa: ANN401
    """A grammar in Lark's form.  GBNF and EBNF say ``::=``, and mean others by the same signs."""
    text = _text(value, name)
    if "::=" in text or "start:" not in text:
        said = (
            f"{name} must be a Lark grammar with a rule start here, not GBNF or EBNF:"
            ' give it as response_format {"lark": ...}'
        )
        raise ApiError(400, said, param=name, code="unsupported_parameter")
    return [(FORMAT, {"lark": text})]


_KINDS = {
    "json": json_schema,
    "json_object": json_object,
    "regex": regex,
    "choice": choice,
    "grammar": grammar,
}


def structured_outputs(value: Any, name: str) -> Heard:  # noqa: ANN401
    """VLLM's object with one of several keys."""
    if not isinstance(value, dict):
        raise _wrong(name, "an object", value)
    heard: Heard = []
    for key, inner in value.items():
        if inner in (None, False):
            continue
        if key not in _KINDS:
            said = f"{name}.{key} is not supported here: give one of {', '.join(_KINDS)} alone"
            raise ApiError(400, said, param=f"{name}.{key}", code="unsupported_parameter")
        heard += _KINDS[key](inner, f"{name}.{key}")
    if len(heard) > 1:
        raise _wrong(name, f"one of {', '.join(_KINDS)}", value)
    return heard


def format_of_ollama(value: Any, name: str) -> Heard:  # noqa: ANN401
    """``json``, or a JSON schema."""
    return json_object(True, name) if value == "json" else json_schema(value, name)  # noqa: FBT003


_BY_TYPE = {
    "json": json_schema,
    "json_object": json_schema,
    "json_schema": json_schema,
    "regex": regex,
    "grammar": grammar,
}
DESCRIBING = frozenset({"name", "description", "strict"})
"""What a format may hold beside a schema, which holds a reply strictly in any case."""


def response_format(value: Any, name: str) -> Heard:  # noqa: ANN401
    """OpenAI's object, with a schema where llama.cpp, TGI, Fireworks or LM Studio put it."""
    kind = value.get("type") if isinstance(value, dict) else None
    if not isinstance(kind, str) or kind not in _BY_TYPE or "json_schema" in value:
        return [(FORMAT, value)]
    key = next((key for key in ("schema", "value", kind) if key in value), None)
    if key is None:
        return [(FORMAT, value)]
    others = value.keys() - {"type", key} - DESCRIBING
    return [*_BY_TYPE[kind](value[key], name), *((None, f"{name}.{k}") for k in sorted(others))]


def _schema(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "reply", "schema": schema}}


def _text(value: object, name: str) -> str:
    if not isinstance(value, str) or not value:
        raise _wrong(name, "a text that is not empty", value)
    return value


def _wrong(name: str, legal: str, value: object) -> ApiError:
    shown = repr(value)
    shown = shown if len(shown) <= 80 else f"{shown[:77]}..."  # noqa: PLR2004
    return ApiError(400, f"{name} must be {legal}, not {shown}", param=name, code="invalid_value")
