"""Tools of a request, and what a reply must be: the engine's options ``tools`` and ``schema``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mlxfill import TemplateError
from mlxfill.tool_calls import call_form
from mlxfill_serve.bodies import Allowing, Chosen
from mlxfill_serve.callgrammar import CallGrammar
from mlxfill_serve.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mlxfill_serve.bodies import Asked, ChatBody

ANY_OBJECT = {"type": "object"}


def with_allowed_tools(body: ChatBody) -> ChatBody:
    """The same request with no other tools than ``tool_choice`` allows.

    :raises ApiError: it allows one that is not there.
    """
    choice = body.tool_choice
    if not isinstance(choice, Allowing):
        return body
    allowed = [each.function.name for each in choice.allowed_tools.tools]
    there = [tool.function.name for tool in body.tools or ()]
    missing = next((name for name in allowed if name not in there), None)
    if missing is not None:
        raise _no_such_tool(missing)
    tools = [tool for tool in body.tools or () if tool.function.name in allowed]
    return body.model_copy(update={"tools": tools, "tool_choice": choice.allowed_tools.mode})


def _no_such_tool(name: str) -> ApiError:
    said = f"tool_choice names {name[:80]!r}, which is not among the tools"
    return ApiError(400, said, param="tool_choice")


def tools_of(body: ChatBody) -> list[dict[str, Any]] | None:
    """The tools that the model is shown; None for none.

    :raises ApiError: two of a name, or a choice among tools that are not there.
    """
    choice = body.tool_choice
    if not body.tools:
        if choice == "required" or isinstance(choice, Chosen):
            raise ApiError(400, "tool_choice needs tools", param="tool_choice")
        return None
    names = [tool.function.name for tool in body.tools]
    double = next((name for name in names if names.count(name) > 1), None)
    if double is not None:
        raise ApiError(400, f"two tools are named {double!r}", param="tools")
    if choice == "none":
        return None
    if isinstance(choice, Chosen) and choice.function.name not in names:
        raise _no_such_tool(choice.function.name)
    return [tool.model_dump(exclude_unset=True) for tool in body.tools]


def schema_of(
    body: ChatBody,
    tools: Sequence[Mapping[str, Any]] | None,
    tokenizer: Any,  # noqa: ANN401 - mlx-lm's wrapper, untyped
    options: Mapping[str, Any],
) -> Mapping[str, Any] | None:
    """What the reply must be: calls that must be made, a ``response_format``, either, or anything.

    :param options: variables of the chat template.
    :raises ApiError: this model's calls cannot be put into a grammar, or no such format is known.
    """
    answer = format_of(body)
    choice = body.tool_choice
    if tools and (choice == "required" or isinstance(choice, Chosen)):
        wanted = choice.function.name if isinstance(choice, Chosen) else None
        held = [t for t in tools if wanted in {None, t["function"]["name"]}]
        several = _several(body, wanted)
        return {"lark": _grammar(tokenizer, options, held, None, several=several)}
    if answer is None or not tools:
        return answer
    schema, several = _json_schema(answer), _several(body, None)
    return {"lark": _grammar(tokenizer, options, tools, schema, several=several)}


def _several(body: ChatBody, wanted: str | None) -> bool:
    """Whether a reply may hold more than one call."""
    return body.parallel_tool_calls is not False and wanted is None


def format_of(body: Asked) -> dict[str, Any] | None:
    """``response_format`` in a form that the engine takes."""
    given = body.response_format or {"type": "text"}
    kind = given.get("type")
    if kind == "text":
        return None
    if kind not in ("json_object", "json_schema") and set(given) not in ({"regex"}, {"lark"}):
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
    options: Mapping[str, Any],
    tools: Sequence[Mapping[str, Any]],
    answer: Any,  # noqa: ANN401 - a JSON schema; None: calls only
    *,
    several: bool,
) -> str:
    """A Lark grammar (llguidance's) of calls as the model's template writes them."""
    added = {token.content: at for at, token in tokenizer.added_tokens_decoder.items()}
    try:
        form = call_form(tokenizer, options)
        return CallGrammar(form, added).written(tools, answer, several=several)
    except TemplateError as error:
        said = (
            f'calls cannot be forced on this model: {error}; give tool_choice "auto" or "none",'
            " and no response_format beside tools"
        )
        raise ApiError(400, said, param="tool_choice", code="unsupported_parameter") from None
