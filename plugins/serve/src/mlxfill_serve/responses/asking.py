"""From a request for a response to the chat request that asks the same."""

from __future__ import annotations

from contextlib import contextmanager
from itertools import groupby
from typing import TYPE_CHECKING, Any

from mlxfill_serve.asking import refused
from mlxfill_serve.bodies import (
    AllowedTools,
    Allowing,
    Call,
    CalledFunction,
    ChatBody,
    Chosen,
    ChosenName,
    Function,
    Message,
    Options,
    Tool,
)
from mlxfill_serve.errors import ApiError
from mlxfill_serve.responses.bodies import (
    LOGPROBS,
    Allowed,
    CallItem,
    FunctionTool,
    MessageItem,
    Named,
    ReasoningItem,
    ResultItem,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from mlxfill_serve.responses.bodies import Item, ResponsesBody, Text

NOT_SERVED = {
    "background": "leave it out",
    "context_management": "leave it out, and send a shorter input",
    "conversation": "send the whole conversation as input, or previous_response_id",
    "moderation": "leave it out",
    "prompt": "give instructions and input",
}
"""Fields that would change the reply, and what to do instead."""

_WORDS = (
    ('"json_schema": ...', '"name": ..., "schema": ...'),
    ("response_format.json_schema", "text.format"),
    ("response_format", "text.format"),
    ("max_tokens", "max_output_tokens"),
)
"""Words of errors about a chat request, and what stands in their place here."""


def chat_body(body: ResponsesBody, items: Sequence[Item]) -> ChatBody:
    """The chat request that asks the same.

    :param items: the whole conversation, without references.
    :raises ApiError: something is asked for that cannot be had, or nothing was said.
    """
    for name, remedy in NOT_SERVED.items():
        if getattr(body, name) not in (None, False):
            raise refused(name, remedy)
    messages = [*_instructions(body), *messages_of(items)]
    if not messages:
        raise ApiError(400, "input is empty", param="input", code="invalid_value")
    return ChatBody(
        **{name: getattr(body, name) for name in Options.model_fields},
        messages=messages,
        tools=None if body.tools is None else [_tool(tool) for tool in body.tools],
        tool_choice=_choice(body),
        parallel_tool_calls=body.parallel_tool_calls,
        response_format=_format(body),
        logprobs=LOGPROBS in (body.include or ()),
        top_logprobs=body.top_logprobs,
        max_completion_tokens=body.max_output_tokens,
        chat_template_kwargs=body.chat_template_kwargs,
        reasoning_effort=None if body.reasoning is None else body.reasoning.effort,
    )


@contextmanager
def in_words_of_responses() -> Iterator[None]:
    """Errors about a chat request name the fields that the client has sent."""
    try:
        yield
    except ApiError as error:
        for chat, ours in _WORDS:
            error.message = error.message.replace(chat, ours)
            error.param = error.param and error.param.replace(chat, ours)
        raise


def messages_of(items: Iterable[Item]) -> Iterator[Message]:
    """Chat messages; what an assistant thought, said and called in a row is one of them."""
    for is_reply, group in groupby(items, _is_of_assistant):
        if is_reply:
            yield _reply(list(group))
        else:
            yield from (_message(item) for item in group)


def _is_of_assistant(item: Item) -> bool:
    if isinstance(item, MessageItem):
        return item.role == "assistant"
    return isinstance(item, ReasoningItem | CallItem)


def _reply(items: Sequence[Item]) -> Message:
    thoughts = "".join(_thought(item) for item in items if isinstance(item, ReasoningItem))
    said = "".join(_text(item.content) for item in items if isinstance(item, MessageItem))
    calls = [
        Call(id=item.call_id, function=CalledFunction(name=item.name, arguments=item.arguments))
        for item in items
        if isinstance(item, CallItem)
    ]
    return Message(
        role="assistant",
        content=said,
        reasoning_content=thoughts or None,
        tool_calls=calls or None,
    )


def _message(item: Item) -> Message:
    if isinstance(item, ResultItem):
        return Message(role="tool", tool_call_id=item.call_id, content=_text(item.output))
    if isinstance(item, MessageItem):
        return Message(role=item.role, content=_text(item.content))
    raise TypeError(f"{type(item).__name__} is no message")  # references were resolved


def _thought(item: ReasoningItem) -> str:
    return "".join(part.text for part in item.content or item.summary or ())


def _text(content: Text) -> str:
    return content if isinstance(content, str) else "".join(part.text for part in content)


def _instructions(body: ResponsesBody) -> list[Message]:
    return [Message(role="system", content=body.instructions)] if body.instructions else []


def _tool(tool: FunctionTool) -> Tool:
    """The tool with the keys that were given: templates show them to the model."""
    named = tool.model_dump(include=set(Function.model_fields), exclude_none=True)
    return Tool(type="function", function=Function(**named))


def _choice(body: ResponsesBody) -> Any:  # noqa: ANN401 - as ChatBody has it
    choice = body.tool_choice
    if isinstance(choice, Allowed):
        allowed = AllowedTools(mode=choice.mode, tools=[_chosen(each) for each in choice.tools])
        return Allowing(type="allowed_tools", allowed_tools=allowed)
    return _chosen(choice) if isinstance(choice, Named) else choice


def _chosen(named: Named) -> Chosen:
    return Chosen(type="function", function=ChosenName(name=named.name))


def _format(body: ResponsesBody) -> dict[str, Any] | None:
    given = None if body.text is None else body.text.format
    if given is None or given.get("type") != "json_schema":
        return given
    schema = {name: value for name, value in given.items() if name != "type"}
    return {"type": "json_schema", "json_schema": schema}
