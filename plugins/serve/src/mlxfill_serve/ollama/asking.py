"""From a request of Ollama's clients to the chat request that asks the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mlxfill_serve.asking import refused
from mlxfill_serve.bodies import Call, CalledFunction, ChatBody, Function, Message
from mlxfill_serve.bodies import Tool as ChatTool
from mlxfill_serve.ollama.bodies import ChatAsking, GenerateAsking

if TYPE_CHECKING:
    from mlxfill_serve.ollama.bodies import Asking, OllamaMessage

NOT_SERVED = {
    "raw": "ask /v1/completions",
    "template": "leave it out",
    "suffix": "leave it out",
    "images": "leave them out: only text is understood here",
    "context": "ask /api/chat with the whole conversation",
}
"""Fields that would change the reply, and what to do instead."""
_NAMES = {"num_predict": "max_tokens", "repeat_penalty": "repetition_penalty"}


def chat_body(asking: Asking) -> ChatBody:
    """The chat request that asks the same.

    :raises ApiError: something is asked for that cannot be had.
    """
    return ChatBody(
        model=asking.model.removesuffix(":latest"),
        stream=asking.stream is not False,
        messages=_messages(asking),
        tools=_tools(asking),
        response_format=_format(asking.format),
        chat_template_kwargs=None
        if asking.think is None
        else {"enable_thinking": bool(asking.think)},
        **_options(asking),
    )


def _messages(asking: Asking) -> list[Message]:
    if isinstance(asking, ChatAsking):
        return [_message(said) for said in asking.messages]
    assert isinstance(asking, GenerateAsking)  # noqa: S101 - there are two kinds
    for name, remedy in NOT_SERVED.items():
        if getattr(asking, name):
            raise refused(name, remedy)
    system = [Message(role="system", content=asking.system)] if asking.system else []
    return [*system, Message(role="user", content=asking.prompt)]


def _message(said: OllamaMessage) -> Message:
    if said.images:
        raise refused("images", NOT_SERVED["images"])
    calls = [
        Call(function=CalledFunction(name=c.function.name, arguments=c.function.arguments or {}))
        for c in said.tool_calls or ()
    ]
    return Message(
        role=said.role,
        content=said.content or "",
        reasoning_content=said.thinking or None,
        tool_calls=calls or None,
        name=said.tool_name,
    )


def _tools(asking: Asking) -> list[ChatTool] | None:
    if not isinstance(asking, ChatAsking) or not asking.tools:
        return None
    known = set(Function.model_fields)
    told = [tool.function.model_dump(include=known, exclude_none=True) for tool in asking.tools]
    return [ChatTool(type="function", function=Function(**each)) for each in told]


def _format(given: str | dict[str, Any] | None) -> dict[str, Any] | None:
    if not given:
        return None
    if given == "json":
        return {"type": "json_object"}
    return {"type": "json_schema", "json_schema": {"name": "reply", "schema": given}}


def _options(asking: Asking) -> dict[str, Any]:
    """Ollama's options under our names; below 0 there is no limit to the tokens."""
    if asking.options is None:
        return {}
    known = type(asking.options).model_fields
    given = asking.options.model_dump(include=set(known), exclude_none=True)
    told = {_NAMES.get(name, name): value for name, value in given.items()}
    if told.get("max_tokens", 0) < 0:
        told["max_tokens"] = -1
    return told
