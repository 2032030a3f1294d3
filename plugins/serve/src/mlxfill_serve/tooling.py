"""Tools of a request, and what a reply must be: the engine's options ``tools`` and ``schema``."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from mlxfill_serve.bodies import Chosen
from mlxfill_serve.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mlxfill_serve.bodies import ChatBody

ANY_OBJECT = {"type": "object"}
_MARKER = re.compile(r"<[^<>\s]+>")
"""What llguidance takes for a token of its own in a grammar."""


def tools_of(body: ChatBody) -> list[dict[str, Any]] | None:
    """The tools that the model is shown; None for none.

    :raises ApiError: two of a name, or a choice among tools that are not there.
    """
    choice = body.tool_choice
    if not body.tools:
        if choice not in {None, "none", "auto"}:
            raise ApiError(400, "tool_choice needs tools", param="tool_choice")
        return None
    names = [tool.function.name for tool in body.tools]
    double = next((name for name in names if names.count(name) > 1), None)
    if double is not None:
        raise ApiError(400, f"two tools are named {double!r}", param="tools")
    if choice == "none":
        return None
    if isinstance(choice, Chosen) and choice.function.name not in names:
        said = f"tool_choice names {choice.function.name[:80]!r}, which is not among the tools"
        raise ApiError(400, said, param="tool_choice")
    return [tool.model_dump(exclude_unset=True) for tool in body.tools]


def schema_of(
    body: ChatBody,
    tools: Sequence[Mapping[str, Any]] | None,
    tokenizer: Any,  # noqa: ANN401 - mlx-lm's wrapper, untyped
) -> Mapping[str, Any] | None:
    """What the reply must be: calls that must be made, a ``response_format``, either, or anything.

    :raises ApiError: this model's calls cannot be put into a grammar, or no such format is known.
    """
    answer = _format(body)
    choice = body.tool_choice
    if tools and (choice == "required" or isinstance(choice, Chosen)):
        wanted = choice.function.name if isinstance(choice, Chosen) else None
        held = [t for t in tools if wanted in {None, t["function"]["name"]}]
        return {"lark": _grammar(tokenizer, held, None, several=_several(body, wanted))}
    if answer is None or not tools:
        return answer
    return {"lark": _grammar(tokenizer, tools, _json_schema(answer), several=_several(body, None))}


def _several(body: ChatBody, wanted: str | None) -> bool:
    """Whether a reply may hold more than one call."""
    return body.parallel_tool_calls is not False and wanted is None


def _format(body: ChatBody) -> dict[str, Any] | None:
    """``response_format`` in a form that the engine takes."""
    given = body.response_format or {"type": "text"}
    kind = given.get("type")
    if kind == "text":
        return None
    if kind not in {"json_object", "json_schema"} and set(given) not in ({"regex"}, {"lark"}):
        said = (
            'response_format must be {"type": "text"}, {"type": "json_object"}, '
            '{"type": "json_schema", "json_schema": ...}, {"regex": ...} or {"lark": ...}'
        )
        raise ApiError(400, said, param="response_format", code="invalid_value")
    return given


def _json_schema(answer: Mapping[str, Any]) -> Any:  # noqa: ANN401 - the client's
    """The JSON schema of a format."""
    if answer.get("type") == "json_object":
        return ANY_OBJECT
    inner = answer.get("json_schema")
    if isinstance(inner, dict) and "schema" in inner:
        return inner["schema"]
    said = "response_format beside tools must be json_object or json_schema with a schema"
    raise ApiError(400, said, param="response_format", code="invalid_value")


def _grammar(
    tokenizer: Any,  # noqa: ANN401
    tools: Sequence[Mapping[str, Any]],
    answer: Any,  # noqa: ANN401 - a JSON schema; None: calls only
    *,
    several: bool,
) -> str:
    """A Lark grammar (llguidance's) of calls as the model's template writes them."""
    begin, end = _markers(tokenizer)
    calls = "call (/\\n?/ call)*" if several else "call"
    rules = [
        f"start: /\\n{{0,2}}/ ({calls}{' | answer' if answer is not None else ''})",
        f'call: {begin} "\\n" ({" | ".join(f"call{i}" for i in range(len(tools)))}) "\\n" {end}',
    ]
    for number, tool in enumerate(tools):
        function = tool["function"]
        head = json.dumps(f'{{"name": "{function["name"]}", "arguments": ')
        parameters = json.dumps(function.get("parameters") or ANY_OBJECT)
        rules += [f'call{number}: {head} arguments{number} "}}"']
        rules += [f"arguments{number}: %json {parameters}"]
    if answer is not None:
        rules.append(f"answer: %json {json.dumps(answer)}")
    return "\n".join(rules)


def _markers(tokenizer: Any) -> tuple[str, str]:  # noqa: ANN401
    """What stands around a call, as a grammar writes it."""
    parser = getattr(tokenizer, "tool_parser", None)
    in_json = getattr(parser, "__module__", "") == "mlx_lm.tool_parsers.json_tools"
    markers = tokenizer.tool_call_start or "", tokenizer.tool_call_end or ""
    if not (in_json and all(_MARKER.fullmatch(marker) for marker in markers)):
        said = (
            "calls cannot be forced on this model, whose template does not write them as JSON: give"
            ' tool_choice "auto" or "none", and no response_format beside tools'
        )
        raise ApiError(400, said, param="tool_choice", code="unsupported_parameter")
    return markers
