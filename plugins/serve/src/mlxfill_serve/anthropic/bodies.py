"""Bodies of ``POST /v1/messages`` and ``POST /v1/messages/count_tokens``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Discriminator, FailFast, Field, Tag
from pydantic_core import PydanticCustomError

from mlxfill_serve.bodies import Count, Extras, FunctionName, Length, Loose, TextPart, Unit

Text = str | list[TextPart]


# --- what was said ------------------------------------------------------------------------


class ThinkingBlock(Loose):
    """What the model thought in an earlier turn."""

    type: Literal["thinking"]
    thinking: str


class RedactedBlock(Loose):
    """Thoughts that only their author can read; they are left out."""

    type: Literal["redacted_thinking"]


class UseBlock(Loose):
    """A call in an earlier turn."""

    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, Any]


class ResultBlock(Loose):
    """What a call gave."""

    type: Literal["tool_result"]
    tool_use_id: str
    content: Text | None = None
    is_error: bool | None = None


_KINDS = {
    "text": "Text",
    "thinking": "Thinking",
    "redacted_thinking": "Redacted",
    "tool_use": "Use",
    "tool_result": "Result",
}
"""Tags of the models below; their capital keeps them out of the places that errors name."""


def _kind(block: object) -> str | None:
    told = block.get("type") if isinstance(block, dict) else getattr(block, "type", None)
    return _KINDS.get(told) if isinstance(told, str) else None


Block = Annotated[
    Annotated[TextPart, Tag("Text")]
    | Annotated[ThinkingBlock, Tag("Thinking")]
    | Annotated[RedactedBlock, Tag("Redacted")]
    | Annotated[UseBlock, Tag("Use")]
    | Annotated[ResultBlock, Tag("Result")],
    Discriminator(
        _kind,
        custom_error_type="no_block",
        custom_error_message=(
            f"blocks must be {', '.join(_KINDS)} by their type: images, documents and server tools"
            " are not served"
        ),
    ),
]


class Said(Loose):
    """A message."""

    role: Literal["user", "assistant", "system"]
    content: str | list[Block]


# --- what is asked ------------------------------------------------------------------------


def _of_client(kind: str) -> str:
    if kind != "custom":
        raise PydanticCustomError("server_tool", "server tools are not served, only your own")
    return kind


class ClientTool(Loose):
    """A tool that the client runs."""

    type: Annotated[str, AfterValidator(_of_client)] = "custom"
    name: FunctionName
    description: str | None = None
    input_schema: dict[str, Any]


class Choice(Loose):
    """Which tools may, or must, be called."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class Thinking(Loose):
    """Whether the model thinks first.  ``budget_tokens`` changes nothing here."""

    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: Count | None = None


class OutputConfig(Loose):
    """``format``: a JSON schema that the reply must fit.  ``effort``: how much to think."""

    format: dict[str, Any] | None = None
    effort: str | None = None


class CountBody(Loose):
    """``POST /v1/messages/count_tokens``."""

    model: str | None = None
    messages: Annotated[list[Said], Field(min_length=1), FailFast()]
    system: Text | None = None
    tools: Annotated[list[ClientTool], Field(max_length=1024)] | None = None
    tool_choice: Choice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    mcp_servers: list[Any] | None = None
    container: Any = None


class MessagesBody(CountBody):
    """``POST /v1/messages``."""

    max_tokens: Annotated[Length, Field(ge=1)]
    stream: bool | None = None
    stop_sequences: Annotated[list[str], Field(max_length=64)] | None = None
    temperature: Annotated[float, Field(ge=0)] | None = None
    top_k: Count | None = None
    top_p: Unit | None = None
    metadata: dict[str, Any] | None = None
    service_tier: str | None = None
    mlxfill: Extras | None = None
