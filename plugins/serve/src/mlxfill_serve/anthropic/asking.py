"""From a request for a message to the chat request that asks the same."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from mlxfill_serve.anthropic.bodies import (
    MessagesBody,
    ResultBlock,
    ThinkingBlock,
    UseBlock,
)
from mlxfill_serve.asking import refused
from mlxfill_serve.bodies import (
    Call,
    CalledFunction,
    ChatBody,
    Chosen,
    ChosenName,
    Function,
    Message,
    TextPart,
    Tool,
)
from mlxfill_serve.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mlxfill_serve.anthropic.bodies import Block, CountBody, Said, Text

NOT_SERVED = {
    "mcp_servers": "call their tools yourself",
    "container": "leave it out",
}
"""Fields that would change the reply, and what to do instead."""
CHOICES = {"auto": "auto", "any": "required", "none": "none"}
_WORDS = (
    ("response_format.json_schema", "output_config.format"),
    ("response_format", "output_config.format"),
    ("max_completion_tokens", "max_tokens"),
    ("tool_choice.function", "tool_choice"),
)
"""Words of errors about a chat request, and what stands in their place here."""


def chat_body(body: CountBody) -> ChatBody:
    """The chat request that asks the same.

    :raises ApiError: something is asked for that cannot be had.
    """
    for name, remedy in NOT_SERVED.items():
        if getattr(body, name):
            raise refused(name, remedy)
    if body.messages[-1].role == "assistant":
        said = "messages must end with one of the user: a reply cannot be begun for the model"
        raise ApiError(400, said, param="messages", code="invalid_value")
    choice, config = body.tool_choice, body.output_config
    asked = ChatBody(
        model=body.model,
        messages=[*_system(body.system), *(m for each in body.messages for m in _messages(each))],
        tools=[_tool(tool) for tool in body.tools] if body.tools else None,
        tool_choice=_choice(body),
        parallel_tool_calls=False if choice and choice.disable_parallel_tool_use else None,
        reasoning_effort=None if config is None else config.effort,
        response_format=None if config is None else _format(config.format),
        chat_template_kwargs=_template_options(body),
    )
    if not isinstance(body, MessagesBody):
        return asked
    sampling = {
        "stream": body.stream,
        "temperature": body.temperature,
        "top_k": body.top_k,
        "top_p": body.top_p,
        "stop": body.stop_sequences,
        "max_completion_tokens": body.max_tokens,
        "mlxfill": body.mlxfill,
    }
    return asked.model_copy(update=sampling)


@contextmanager
def in_words_of_messages() -> Iterator[None]:
    """Errors about a chat request name the fields that the client has sent."""
    try:
        yield
    except ApiError as error:
        for chat, ours in _WORDS:
            error.message = error.message.replace(chat, ours)
            error.param = error.param and error.param.replace(chat, ours)
        raise


def _system(system: Text | None) -> list[Message]:
    return [Message(role="system", content=_text(system))] if system else []


def _messages(said: Said) -> Iterator[Message]:
    """Chat messages: each result of a call is one of its own."""
    if isinstance(said.content, str):
        yield Message(role=said.role, content=said.content)
        return
    if said.role == "assistant":
        yield _reply(said.content)
        return
    texts: list[str] = []
    for block in said.content:
        if isinstance(block, ResultBlock) and said.role == "user":
            if texts:
                yield Message(role="user", content="".join(texts))
            texts = []
            yield Message(role="tool", tool_call_id=block.tool_use_id, content=_result(block))
        elif isinstance(block, TextPart):
            texts.append(block.text)
        else:
            raise _misplaced(block.type, said.role)
    if texts:
        yield Message(role=said.role, content="".join(texts))


def _reply(blocks: Sequence[Block]) -> Message:
    """What an assistant thought, said and called in a turn is one message."""
    if any(isinstance(block, ResultBlock) for block in blocks):
        raise _misplaced("tool_result", "assistant")
    thoughts = "".join(block.thinking for block in blocks if isinstance(block, ThinkingBlock))
    calls = [
        Call(id=block.id, function=CalledFunction(name=block.name, arguments=block.input))
        for block in blocks
        if isinstance(block, UseBlock)
    ]
    return Message(
        role="assistant",
        content="".join(block.text for block in blocks if isinstance(block, TextPart)),
        reasoning_content=thoughts or None,
        tool_calls=calls or None,
    )


def _misplaced(kind: str, role: str) -> ApiError:
    said = f"messages: a message of the {role} cannot hold a block {kind!r}"
    return ApiError(400, said, param="messages", code="invalid_value")


def _result(block: ResultBlock) -> str:
    """What a call gave; chat templates have no other word for a failure than the text."""
    text = _text(block.content or "")
    return f"Error: {text}" if block.is_error else text


def _text(content: Text) -> str:
    return content if isinstance(content, str) else "".join(part.text for part in content)


def _tool(tool: Any) -> Tool:  # noqa: ANN401 - a ClientTool
    """The tool with the keys that were given: templates show them to the model."""
    told = {} if tool.description is None else {"description": tool.description}
    function = Function(name=tool.name, parameters=tool.input_schema, **told)
    return Tool(type="function", function=function)


def _choice(body: CountBody) -> Any:  # noqa: ANN401 - as ChatBody has it
    choice = body.tool_choice
    if choice is None or not body.tools:
        return None
    if choice.type != "tool":
        return CHOICES[choice.type]
    if choice.name is None:
        said = "tool_choice.name is missing: the tool to call"
        raise ApiError(400, said, param="tool_choice.name", code="missing_required_parameter")
    return Chosen(type="function", function=ChosenName(name=choice.name))


def _format(given: dict[str, Any] | None) -> dict[str, Any] | None:
    if given is None:
        return None
    if given.get("type") != "json_schema" or not isinstance(given.get("schema"), dict):
        said = 'output_config.format must be {"type": "json_schema", "schema": {...}}'
        raise ApiError(400, said, param="output_config.format", code="invalid_value")
    return {"type": "json_schema", "json_schema": {"name": "reply", "schema": given["schema"]}}


def _template_options(body: CountBody) -> dict[str, Any] | None:
    """Thinking as most templates know it; unless the client says so, the template decides."""
    if body.thinking is None or body.thinking.type == "adaptive":
        return None
    return {"enable_thinking": body.thinking.type == "enabled"}
