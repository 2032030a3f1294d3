"""Bodies of ``POST /v1/responses``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Discriminator, Field, Tag, TypeAdapter
from pydantic_core import PydanticCustomError

from mlxfill_serve.bodies import (
    Count,
    FunctionName,
    Length,
    Loose,
    Options,
    StreamOptions,
    TextPart,
)

LOGPROBS = "message.output_text.logprobs"
"""What ``include`` holds when log-probabilities are wanted."""
Text = str | list[TextPart]


def _of_function(kind: str) -> str:
    if kind != "function":
        raise PydanticCustomError("no_function", "only functions can be called here")
    return kind


FunctionType = Annotated[str, AfterValidator(_of_function)]


# --- what was said ------------------------------------------------------------------------


class MessageItem(Loose):
    """What somebody said.  ``id``: that of a message of ours."""

    type: Literal["message"] | None = None
    role: Literal["system", "developer", "user", "assistant"]
    content: Text
    id: str | None = None


class ThoughtPart(Loose):
    """A piece of what a model thought."""

    text: str


class ReasoningItem(Loose):
    """What a model thought.  ``content`` is all of it, where it is known."""

    type: Literal["reasoning"]
    summary: list[ThoughtPart] | None = None
    content: list[ThoughtPart] | None = None
    id: str | None = None


class CallItem(Loose):
    """A call; ``arguments`` are JSON text."""

    type: Literal["function_call"]
    call_id: str
    name: str
    arguments: str
    id: str | None = None


class ResultItem(Loose):
    """What a call gave."""

    type: Literal["function_call_output"]
    call_id: str
    output: Text


class ReferenceItem(Loose):
    """Stands for an item of an earlier reply."""

    type: Literal["item_reference"] | None = None
    id: str


_KINDS = {
    "message": "Message",
    "reasoning": "Reasoning",
    "function_call": "Call",
    "function_call_output": "Result",
    "item_reference": "Reference",
}
"""Tags of the models below; their capital keeps them out of the places that errors name."""


def _kind(item: object) -> str | None:
    """The tag of an item; where it tells no type it is a message, or refers to an item."""
    if isinstance(item, Loose):  # which is to become JSON again
        return type(item).__name__.removesuffix("Item")
    if not isinstance(item, dict):
        return None
    told = item.get("type")
    if told is None:
        return "Reference" if "id" in item and "role" not in item else "Message"
    return _KINDS.get(told) if isinstance(told, str) else None


Item = Annotated[
    Annotated[MessageItem, Tag("Message")]
    | Annotated[ReasoningItem, Tag("Reasoning")]
    | Annotated[CallItem, Tag("Call")]
    | Annotated[ResultItem, Tag("Result")]
    | Annotated[ReferenceItem, Tag("Reference")],
    Discriminator(
        _kind,
        custom_error_type="no_item",
        custom_error_message=f"items must be {', '.join(_KINDS)} by their type",
    ),
]
ITEMS: TypeAdapter[list[Item]] = TypeAdapter(list[Item])


# --- what is asked ------------------------------------------------------------------------


class FunctionTool(Loose):
    """A function that the model may call."""

    type: FunctionType
    name: FunctionName
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Named(Loose):
    """The function to call."""

    type: FunctionType
    name: str


class Allowed(Loose):
    """Those of the tools that may, or must, be called."""

    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: Annotated[list[Named], Field(min_length=1)]


class TextOptions(Loose):
    """``format``: what the reply must be."""

    format: dict[str, Any] | None = None
    verbosity: str | None = None


class ReasoningOptions(Loose):
    """``effort``: how much a model should think."""

    effort: str | None = None


class ResponsesBody(Options):
    """``POST /v1/responses``."""

    input: str | list[Item]
    instructions: str | None = None
    previous_response_id: str | None = None
    tools: Annotated[list[FunctionTool], Field(max_length=1024)] | None = None
    tool_choice: Literal["none", "auto", "required"] | Named | Allowed | None = None
    parallel_tool_calls: bool | None = None
    max_output_tokens: Length | None = None
    text: TextOptions | None = None
    reasoning: ReasoningOptions | None = None
    include: list[str] | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    # They change nothing here: what OpenAI's own tools may cost, what is cut off from a prompt that
    # is too long (nothing is), how events are padded, and what clients tell of themselves.
    max_tool_calls: Count | None = None
    truncation: str | None = None
    stream_options: StreamOptions | None = None
    client_metadata: dict[str, Any] | None = None
    # Known so that clients which send every field they have may send null.
    background: bool | None = None
    context_management: Any = None
    conversation: Any = None
    moderation: Any = None
    prompt: Any = None
