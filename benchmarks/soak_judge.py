"""What a soak compares with: engines without plugins, one for each model, open all the time."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from mlxfill import Engine, load
from mlxfill_model_tiny import held_out_asks
from mlxfill_testing import (
    ARCHITECTURES,
    ROUNDED,
    shared_model,
    tiny_folder,
    tiny_model,
    tiny_tokenizer,
)

if TYPE_CHECKING:
    from pathlib import Path

    from mlxfill import Result
    from soak_draws import Asked

TINY, ALPHABET = "tiny", "alphabet"
HELD = "tiny, held to a schema"
DRAFTS = ("llama", "qwen3_next", "gemma3_text", "mamba", "lfm2")
INJECTED = frozenset({"template", "schema", "echo"})
"""Origins of spans that a trusted source appends unread."""
NEAR = 1e-3
"""Log-probability between the two likeliest tokens, below which rounding may decide."""
ADAPTERS = ("first", "second")
FAIR = (
    "is it made for this model?",
    "more of its guesses may be refused",
    "the prewarmed cache holds no states for this drafter",
    "max_mb of [cache] is 1",
)
"""How faults end that are no mistakes here: drafters of random weights, without the adapter, or
without their part of a caller's cache; caches that the drawn config has no room for."""


class MismatchError(AssertionError):
    """A reply is not what plain decoding says."""


@dataclass
class World:
    """Folders and engines that all episodes share."""

    folder: Path
    asks: list[Any] = field(default_factory=lambda: held_out_asks(60))
    adapters: dict[str, Path] = field(default_factory=dict)
    drafts: dict[str, Path] = field(default_factory=dict)
    judges: dict[str, Engine] = field(default_factory=dict)

    def prepare(self) -> None:
        """Make all of it, so that nothing is made later that stays."""
        self.adapters = {
            name: _adapter(self.folder / name, seed) for seed, name in enumerate(ADAPTERS)
        }
        self.drafts = {name: tiny_folder(self.folder / f"draft-{name}", name) for name in DRAFTS}
        self.judges[TINY] = load(TINY, plugins=[], config={}, adapters=self.adapters)
        self.judges[HELD] = load(TINY, plugins=["constrain"], config={}, adapters=self.adapters)
        if find_spec("mlxfill_diffusion"):
            self.judges[ALPHABET] = load(ALPHABET, plugins=["diffusion"], config={})
        for name in ARCHITECTURES:
            shared_model(name)
            self.judges[name] = Engine(tiny_model(name), tiny_tokenizer(), plugins=[], config={})

    def plain(self, model: str, asked: Asked, **more: Any) -> Result:  # noqa: ANN401 - options
        """What plain decoding says; a schema is held, but nothing is proposed."""
        held = asked.options.get("schema") is not None
        options = {**asked.options, **more}
        if held:
            options["sources"] = []
        options.pop("num_draft_tokens", None)
        return self.judges[HELD if held else model].generate(
            asked.prompt, tools=asked.tools, **options
        )

    def close(self) -> None:
        """Close the engines."""
        for engine in self.judges.values():
            engine.close()


def exact(model: str) -> bool:
    """Whether windows of this model give the logits of single steps bit by bit."""
    return model not in ROUNDED


def compare(world: World, model: str, asked: Asked, result: Result, *, loose: bool = False) -> None:
    """Raise ``MismatchError`` unless ``result`` is the plain reply, or its beginning if cancelled.

    :param loose: whether spans may be injected; what follows the first one is not compared.
    """
    if any(not fault.message.endswith(FAIR) for fault in result.faults):
        raise MismatchError(f"faults: {result.faults}")
    if len(result.tokens) != len(result.origins):
        raise MismatchError(f"{len(result.tokens)} tokens, {len(result.origins)} origins")
    expected = world.plain(model, asked)
    count = len(result.tokens)
    cut = result.finish_reason == "cancelled"
    if loose and asked.options.get("sources_policy") != "verify":
        at = next((i for i, o in enumerate(result.origins) if o in INJECTED), None)
        if at is not None:
            count, cut = at, True
    wanted = expected.tokens[:count] if cut else expected.tokens
    if result.tokens[:count] != wanted:
        _judge(world, model, asked, result.tokens[:count], expected.tokens)
        return
    if cut:
        return
    for name in ("text", "finish_reason", "tool_calls"):
        if getattr(result, name) != getattr(expected, name):
            raise MismatchError(
                f"{name} {getattr(result, name)!r}, plainly {getattr(expected, name)!r}"
            )
    if expected.logprobs is not None and not _close(result.logprobs or [], expected.logprobs):
        raise MismatchError(f"logprobs {result.logprobs}, plainly {expected.logprobs}")


def _judge(world: World, model: str, asked: Asked, tokens: list[int], expected: list[int]) -> None:
    """A first difference is allowed where rounding may decide, nowhere else."""
    pairs = zip(tokens, expected, strict=False)
    at = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(tokens), len(expected)))
    if not asked.exact:
        tops = world.plain(model, asked, top_logprobs=2).top_logprobs or []
        if at < len(tops) and tops[at][0][1] - tops[at][1][1] < NEAR:
            return
    raise MismatchError(
        f"token {at}: {tokens[at : at + 5]}, plainly {expected[at : at + 5]}"
        f" (of {len(tokens)} and {len(expected)})"
    )


def _close(got: list[float], expected: list[float]) -> bool:
    return len(got) == len(expected) and all(
        a == b or math.isclose(a, b, abs_tol=1e-3) for a, b in zip(got, expected, strict=True)
    )


def _adapter(folder: Path, seed: int) -> Path:
    """A LoRA adapter of the tiny model with random weights."""
    import mlx.core as mx
    from mlx.utils import tree_flatten
    from mlx_lm.tuner.utils import linear_to_lora_layers

    parameters = {"rank": 4, "scale": 4.0, "dropout": 0.0}
    with load(TINY, plugins=[], config={}) as engine:
        linear_to_lora_layers(engine.model, 2, parameters)
        mx.random.seed(seed)
        arrays: Any = tree_flatten(engine.model.parameters())
        weights = {
            name: 0.1 * mx.random.normal(array.shape)
            for name, array in arrays
            if name.rpartition(".")[2] in {"lora_a", "lora_b"}
        }
    folder.mkdir()
    mx.save_safetensors(str(folder / "adapters.safetensors"), weights)
    settled = {"fine_tune_type": "lora", "num_layers": 2, "lora_parameters": parameters}
    (folder / "adapter_config.json").write_text(json.dumps(settled), "utf-8")
    return folder
