"""The options that say how tokens are chosen and when to stop, under mlx-lm's names."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import attrs
import typer
from attrs import define

from mlxfill.cli.options.shape import read_shape
from mlxfill.cli.terminal.encoding import as_text
from mlxfill.errors import InputError

if TYPE_CHECKING:
    from typer.models import OptionInfo

    from mlxfill.config import Config
    from mlxfill.engine import Engine


SHAPE = ("schema", "regex", "grammar")
TEXTS = ("stop", "regex", "chat_template_config")
"""Options that hold text, and no name of a file."""


def _number(text: str, *names: str) -> OptionInfo:
    option: OptionInfo = typer.Option(*names, metavar="X", help=text)
    return option


def _count(text: str, *names: str) -> OptionInfo:
    option: OptionInfo = typer.Option(*names, metavar="N", help=text)
    return option


@define
class Decoding:
    """Fields are named as in ``Options`` and ``Sampling``; None: as the config says.

    ``schema``, ``regex`` and ``grammar`` are forms of one option.
    """

    max_tokens: Annotated[
        int | None, _count("Most tokens to generate; -1: no limit.", "--max-tokens", "-m")
    ] = None
    stop: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="End before this text; may be repeated."),
    ] = None
    schema: Annotated[
        str | None,
        typer.Option(metavar="FILE|JSON", help="JSON schema that the reply must satisfy."),
    ] = None
    regex: Annotated[
        str | None,
        typer.Option(metavar="PATTERN", help="Regular expression that the reply must match."),
    ] = None
    grammar: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Lark grammar that describes the reply."),
    ] = None
    temperature: Annotated[
        float | None, _number("0: always the likeliest token.", "--temp", "--temperature")
    ] = None
    top_p: Annotated[float | None, _number("Sample from this share of the probability.")] = None
    top_k: Annotated[int | None, _count("Sample from the N likeliest tokens.")] = None
    min_p: Annotated[float | None, _number("Leave out what is less likely, by this factor.")] = None
    min_tokens_to_keep: Annotated[int | None, _count("What --min-p must leave.")] = None
    xtc_probability: Annotated[float | None, _number("How often XTC sampling applies.")] = None
    xtc_threshold: Annotated[float | None, _number("What XTC leaves out, but one.")] = None
    seed: Annotated[int | None, _count("Fixes what is sampled; chosen when left out.")] = None
    repetition_penalty: Annotated[float | None, _number("Penalty for tokens used lately.")] = None
    repetition_context_size: Annotated[int | None, _count("How many tokens that are.")] = None
    presence_penalty: Annotated[float | None, _number("The same, additive.")] = None
    presence_context_size: Annotated[int | None, _count("How many tokens that are.")] = None
    frequency_penalty: Annotated[float | None, _number("The same, for each occurrence.")] = None
    frequency_context_size: Annotated[int | None, _count("How many tokens that are.")] = None
    max_kv_size: Annotated[int | None, _count("Keep N tokens in a rotating cache.")] = None
    kv_bits: Annotated[int | None, _count("Quantize the KV cache to N bits.")] = None
    kv_group_size: Annotated[int | None, _count("Values that share a scale.")] = None
    quantized_kv_start: Annotated[int | None, _count("Quantize from N tokens on.")] = None
    prefill_step_size: Annotated[int | None, _count("Prompt tokens in one forward.")] = None
    chat_template_config: Annotated[
        str | None,
        typer.Option(metavar="JSON", help='Options of the template: {"enable_thinking": false}.'),
    ] = None

    def given(self) -> dict[str, Any]:
        """The options that were given, as keywords of ``Engine.stream``.

        :raises InputError: the template's options are no JSON object, or the schema cannot be read.
        """
        values = {name: v for name, v in attrs.asdict(self).items() if v is not None}
        values |= {name: _texts(values[name]) for name in TEXTS if name in values}
        shape = {name: values.pop(name) for name in SHAPE if name in values}
        if shape:
            values["schema"] = read_shape(shape)
        template = values.pop("chat_template_config", None)
        if template is not None:
            values["template_options"] = _json_object(template)
        return values

    def check(self, config: Config) -> None:
        """Find illegal values before a model is loaded.  Raises ``InputError``."""
        from mlxfill.request.options import make_options

        make_options(attrs.asdict(config.generation), self.given())

    def draws(self, config: Config) -> bool:
        """Whether tokens are drawn at random."""
        temperature = self.temperature
        return (config.generation.temperature if temperature is None else temperature) > 0

    def for_engine(self, engine: Engine) -> dict[str, Any]:
        """``given()``, with the tokens that XTC must spare, as mlx-lm's command line has them."""
        values = self.given()
        if self.xtc_probability:
            spared = [*engine.tokenizer.encode("\n"), *engine.tokenizer.eos_token_ids]
            values["xtc_special_tokens"] = spared
        return values


def _texts(value: str | list[str]) -> str | list[str]:
    return as_text(value) if isinstance(value, str) else [as_text(text) for text in value]


def _json_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise InputError(f"--chat-template-config must be a JSON object, not {text!r}")
    return value
