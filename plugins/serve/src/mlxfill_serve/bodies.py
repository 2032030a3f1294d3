"""Bodies of requests: what OpenAI's API and mlx-lm's server take, and nothing unheard of."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, FailFast, Field
from pydantic_core import PydanticCustomError

MOST_TOKENS = (1 << 31) - 1
Length = Annotated[int, Field(ge=-1, le=MOST_TOKENS)]
"""-1: as many as there may be.  The largest number is what clients send that mean the same."""
Bias = dict[str, float]
Unit = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0)]
Seed = Annotated[int, Field(ge=-(1 << 63), lt=1 << 63)]
FunctionName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.:/-]{1,128}$")]


class Body(BaseModel):
    """A JSON object whose keys are all known."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Loose(BaseModel):
    """A JSON object that may hold more than is looked at."""

    model_config = ConfigDict(extra="allow", strict=True)


def _of_text(kind: str) -> str:
    if kind not in ("text", "input_text", "output_text"):
        raise PydanticCustomError("not_text", "only text is understood here")
    return kind


class TextPart(Loose):
    """A part of a message.  Only text is understood."""

    type: Annotated[str, AfterValidator(_of_text)]
    text: str


class CalledFunction(Loose):
    """Name and arguments (JSON text, or an object) of a call."""

    name: str
    arguments: str | dict[str, Any] | None = None


class Call(Loose):
    """A call in an earlier message of the assistant."""

    id: str | None = None
    function: CalledFunction


class Message(Loose):
    """A chat message."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[TextPart] | None = None
    name: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    thinking: str | None = None
    reasoning_details: list[dict[str, Any]] | None = None
    thinking_blocks: list[dict[str, Any]] | None = None
    refusal: str | None = None
    function_call: CalledFunction | None = None
    tool_calls: list[Call] | None = None
    tool_call_id: str | None = None


class Function(Loose):
    """A function that the model may call."""

    name: FunctionName
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(Loose):
    """A tool in OpenAI's format."""

    type: Literal["function"]
    function: Function


class ChosenName(Loose):
    """The name of the function to call."""

    name: str


class Chosen(Loose):
    """A ``tool_choice`` that names a function."""

    type: Literal["function"]
    function: ChosenName


class AllowedTools(Loose):
    """Those of the tools that may, or must, be called."""

    mode: Literal["auto", "required"]
    tools: Annotated[list[Chosen], Field(min_length=1)]


class Allowing(Loose):
    """A ``tool_choice`` that names several functions."""

    type: Literal["allowed_tools"]
    allowed_tools: AllowedTools


class StreamOptions(Loose):
    """``include_usage``: a last chunk with the counts of the whole request."""

    include_usage: bool | None = None


class Extras(Body):
    """What mlxfill adds to OpenAI's API.

    ``origins``: say of each token where it came from.  ``session``: requests of one conversation.
    ``draft`` false: without the drafter.  ``plugins``: those that may propose tokens.  ``audit``:
    compare the reply with plain decoding.  ``stop_in_reasoning``: stop strings count there too.
    """

    origins: bool = False
    session: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    draft: bool | None = None
    plugins: list[str] | None = None
    audit: bool = False
    stop_in_reasoning: bool | None = None


class Options(Body):
    """What every request for a reply may hold."""

    model: str | None = None
    stream: bool | None = None
    temperature: Annotated[float, Field(ge=0)] | None = None
    top_p: Unit | None = None
    top_k: Count | None = None
    min_p: Unit | None = None
    xtc_probability: Unit | None = None
    xtc_threshold: Annotated[float, Field(ge=0, le=0.5)] | None = None
    repetition_penalty: Annotated[float, Field(ge=0)] | None = None
    repetition_context_size: Count | None = None
    presence_penalty: float | None = None
    presence_context_size: Count | None = None
    frequency_penalty: float | None = None
    frequency_context_size: Count | None = None
    logit_bias: Bias | None = None
    seed: Seed | None = None
    stop: str | list[str] | None = None
    stop_token_ids: Annotated[list[Count], Field(max_length=64)] | None = None
    min_tokens: Count | None = None
    ignore_eos: bool | None = None
    num_draft_tokens: Count | None = None
    draft_model: str | None = None
    adapters: str | None = None
    mlxfill: Extras | None = None
    # Taken note of by OpenAI alone; they do not change what a model says.
    user: str | None = None
    metadata: dict[str, Any] | None = None
    store: bool | None = None
    service_tier: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    prompt_cache_options: dict[str, Any] | None = None


class Asked(Options):
    """What chat and text completions share."""

    stream_options: StreamOptions | None = None
    max_tokens: Length | None = None
    n: Annotated[int, Field(ge=1)] | None = None
    response_format: dict[str, Any] | None = None


class ChatBody(Asked):
    """``POST /v1/chat/completions``."""

    messages: Annotated[list[Message], Field(min_length=1), FailFast()]
    tools: Annotated[list[Tool], Field(max_length=1024)] | None = None
    tool_choice: Literal["none", "auto", "required"] | Chosen | Allowing | None = None
    parallel_tool_calls: bool | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=-1, le=20)] | None = None
    max_completion_tokens: Length | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    reasoning_effort: str | None = None
    verbosity: str | None = None
    modalities: list[Literal["text"]] | None = None
    include_reasoning: bool | None = None
    # A guess at the reply, which makes OpenAI faster and changes nothing that is said.
    prediction: dict[str, Any] | None = None


class CompletionBody(Asked):
    """``POST /v1/completions``."""

    prompt: str | list[str] | list[int] | list[list[int]]
    logprobs: Annotated[int, Field(ge=0, le=20)] | bool | None = None
    top_logprobs: Annotated[int, Field(ge=-1, le=20)] | None = None
    max_completion_tokens: Length | None = None
    echo: bool | None = None
    suffix: str | None = None
    best_of: int | None = None


FIELDS = frozenset({*ChatBody.model_fields, *CompletionBody.model_fields})
"""What a request may hold."""
