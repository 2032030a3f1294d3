"""Bodies of ``POST /api/chat``, ``POST /api/generate`` and ``POST /api/show``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import FailFast, Field

from mlxfill_serve.bodies import Bias, Count, Function, Loose, Unit


class OllamaFunction(Loose):
    """Name and arguments of a call."""

    name: str
    arguments: dict[str, Any] | None = None


class OllamaCall(Loose):
    """A call in an earlier message of the assistant."""

    function: OllamaFunction


class OllamaMessage(Loose):
    """A message."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str | None = None
    thinking: str | None = None
    images: list[Any] | None = None
    tool_calls: list[OllamaCall] | None = None
    tool_name: str | None = None


class OllamaTool(Loose):
    """A function that the model may call."""

    type: Literal["function"] = "function"
    function: Function


class ModelOptions(Loose):
    """How tokens are drawn; what else Ollama knows concerns its own runtime."""

    num_predict: int | None = None
    temperature: Annotated[float, Field(ge=0)] | None = None
    top_k: Count | None = None
    top_p: Unit | None = None
    min_p: Unit | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    repeat_penalty: Annotated[float, Field(ge=0)] | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: Bias | None = None


class Asking(Loose):
    """What both ways to ask share."""

    model: str
    stream: bool | None = None
    format: Literal["", "json"] | dict[str, Any] | None = None
    options: ModelOptions | None = None
    think: bool | str | None = None
    keep_alive: Any = None


class ChatAsking(Asking):
    """``POST /api/chat``."""

    messages: Annotated[list[OllamaMessage], FailFast()]
    tools: list[OllamaTool] | None = None


class GenerateAsking(Asking):
    """``POST /api/generate``."""

    prompt: str = ""
    system: str | None = None
    suffix: str | None = None
    raw: bool | None = None
    images: list[Any] | None = None
    template: str | None = None
    context: list[int] | None = None


class ShowAsking(Loose):
    """``POST /api/show``."""

    model: str | None = None
    name: str | None = None
