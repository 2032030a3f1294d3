"""Requests that a soak makes: everything that a caller may say, drawn at random."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from random import Random

    import mlx.core as mx

    from mlxfill_model_tiny import Ask

SCHEMAS: tuple[dict[str, Any], ...] = (
    {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 12},
            "count": {"type": "integer", "minimum": 0, "maximum": 99},
        },
        "required": ["name", "count"],
        "additionalProperties": False,
    },
    {"type": "array", "items": {"enum": ["red", "green", "blue"]}, "minItems": 1, "maxItems": 4},
    {"type": "json_object"},
    {"regex": "(Mon|Tues|Fri)day( [0-9]{1,2})?"},
    {"lark": 'start: "yes" | "no, " REASON\nREASON: /[a-z ]{1,20}/\n'},
)
STOPS = ("\n\n", "file", "</think>", "e", "tool_call>", '"}', "ing the")
WORDS = "the file name is opened and read again; list all of the days of the week, then the file "
ILLEGAL: tuple[dict[str, Any], ...] = (
    {"max_tokens": -2},
    {"temperature": -1},
    {"temperature": float("nan")},
    {"top_p": 1.5},
    {"seed": -1},
    {"kv_bits": 5},
    {"stop": [""]},
    {"logit_bias": {10**9: 1.0}},
    {"sources": ["nobody"]},
    {"adapters": "nobody"},
    {"schema": {"regex": "("}},
    {"max_token": 4},
    {"append_chunk": "many"},
    {"snapshot_at": 10**9},
)


@dataclass(frozen=True)
class Asked:
    """A request.  ``exact``: windows give the logits of single steps bit by bit."""

    prompt: Any
    tools: list[dict[str, Any]] | None = None
    options: dict[str, Any] = field(default_factory=dict)
    exact: bool = True

    def keywords(self, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - options
        """For ``Engine.stream``."""
        return {"prompt": self.prompt, "tools": self.tools, **self.options, **more}

    def changed(self, **options: Any) -> Asked:  # noqa: ANN401
        """The same with other options."""
        return Asked(self.prompt, self.tools, {**self.options, **options}, self.exact)


def for_tiny(draw: Random, asks: list[Ask], vocabulary: int, adapters: list[str]) -> Asked:
    """A request to the trained model."""
    ask = draw.choice(asks)
    kind = draw.random()
    tools = None
    prompt: Any = ask.messages
    if kind < 0.6:  # noqa: PLR2004 - shares, here and below
        tools = ask.tools
    elif kind < 0.75:  # noqa: PLR2004
        prompt = [{"role": "user", "content": _text(draw)}]
    elif kind < 0.9:  # noqa: PLR2004
        prompt = _text(draw)
    else:
        prompt = [draw.randrange(vocabulary) for _ in range(draw.choice([1, 2, 30, 200]))]
    options = options_of(draw, vocabulary)
    if draw.random() < 0.05:  # noqa: PLR2004
        options |= {"kv_bits": 8, "kv_group_size": 32, "quantized_kv_start": draw.choice([0, 30])}
    if draw.random() < 0.15:  # noqa: PLR2004
        options["schema"] = draw.choice(SCHEMAS)
    if isinstance(prompt, list) and isinstance(prompt[0], dict) and draw.random() < 0.2:  # noqa: PLR2004
        options["template_options"] = {"enable_thinking": draw.random() < 0.5}  # noqa: PLR2004
    if adapters and draw.random() < 0.5:  # noqa: PLR2004
        options["adapters"] = draw.choice(adapters)
    return Asked(prompt, tools, options)


def for_random(draw: Random, vocabulary: int, *, exact: bool) -> Asked:
    """A request to a model of random weights; greedy where sums may be rounded otherwise."""
    if draw.random() < 0.3:  # noqa: PLR2004
        prompt: Any = [{"role": "user", "content": draw.choice(["the file", "on and on", "in 3"])}]
    else:
        piece = [draw.randrange(1, vocabulary) for _ in range(draw.randint(1, 12))]
        prompt = piece * draw.randint(1, 4)
    if not exact:
        return Asked(prompt, None, {"max_tokens": draw.choice([5, 30, 60])}, exact=False)
    return Asked(prompt, None, options_of(draw, vocabulary))


def options_of(draw: Random, vocabulary: int) -> dict[str, Any]:
    """Options and sampling; most requests have some."""
    made: dict[str, Any] = {"max_tokens": draw.choice([0, 1, 2, 7, 20, 60, 120])}
    if draw.random() < 0.5:  # noqa: PLR2004
        made |= {"temperature": round(draw.uniform(0.1, 1.6), 2), "seed": draw.randrange(1 << 40)}
        made |= _some(
            draw,
            0.3,
            {
                "top_p": draw.uniform(0.2, 1),
                "top_k": draw.randint(0, 40),
                "min_p": draw.uniform(0, 0.2),
                "xtc_probability": 0.5,
            },
        )
    biases = {draw.randrange(vocabulary): draw.uniform(-6, 6) for _ in range(3)}
    made |= _some(
        draw,
        0.12,
        {
            "repetition_penalty": draw.uniform(0.8, 1.5),
            "presence_penalty": draw.uniform(-1, 1),
            "frequency_penalty": draw.uniform(-1, 1),
            "logit_bias": biases,
            "stop": draw.sample(STOPS, draw.randint(1, 3)),
            "logprobs": True,
            "top_logprobs": draw.randint(1, 4),
            "prefill_step_size": draw.choice([1, 7, 64]),
            "append_chunk": draw.choice([1, 3]),
            "max_span": draw.choice([2, 5]),
            "num_draft_tokens": draw.choice([0, 1, 5]),
            "eos_token_ids": (),
            "logits_processors": [spoiled],
            "phase_times": True,
        },
    )
    made["sources_policy"] = draw.choice(["verify", "verify", "trust"])
    return made


def spoiled(tokens: mx.array, logits: mx.array) -> mx.array:
    """A caller's processor: what it does depends on the newest token."""
    import mlx.core as mx

    shift = mx.arange(logits.shape[-1]) % 7 == tokens[-1] % 7
    return logits - 2.0 * shift


def _some(draw: Random, share: float, choices: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in choices.items() if draw.random() < share}


def _text(draw: Random) -> str:
    at, count = draw.randrange(40), draw.randint(1, 3)
    return WORDS[at : at + draw.randint(3, 40)] * count
