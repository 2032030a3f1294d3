"""Tiny random models of mlx-lm's architectures, built from their own config classes.

Weights are random but seeded; nothing is downloaded.  Models have a vocabulary of 64 ids (but for
one), fp32 weights and logits with a spread like that of a trained model.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import mlx.core as mx
from mlx.utils import tree_map

from mlxfill_testing.architectures import ROUNDED, ROUNDING, VOCAB, config_of

__all__ = ["ARCHITECTURES", "ROUNDED", "ROUNDING", "VOCAB"]

_DENSE = ("llama", "qwen2", "qwen3", "olmo2", "phi3", "granite", "gpt2", "gpt_neox")
_EXPERTS = ("qwen3_moe", "mixtral")
_LATENT = ("deepseek_v3",)  # one id at a time goes another way than several
_CHUNKS = ("llama4",)
_WINDOWS = ("gemma2", "gemma3_text", "cohere2", "olmo3", "gpt_oss")
_RECURRENT = ("mamba", "mamba2", "rwkv7")
_HYBRID = ("qwen3_5", "qwen3_next", "lfm2", "recurrent_gemma", "nemotron_h")
_COMPOSITE = ("baichuan_m1", "falcon_h1")


class _Configs(Mapping[str, dict[str, Any]]):
    """Configs by name, made when they are asked for: that imports the model's file."""

    _names = (
        *(*_DENSE, *_EXPERTS, *_LATENT, *_CHUNKS),
        *(*_WINDOWS, *_RECURRENT, *_HYBRID, *_COMPOSITE),
    )

    def __getitem__(self, name: str) -> dict[str, Any]:
        if name not in self._names:
            raise KeyError(name)
        return config_of(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


ARCHITECTURES: Mapping[str, dict[str, Any]] = _Configs()
"""Configs of some architectures of every kind, by mlx-lm's ``model_type``: enough for most tests.
``tiny_model`` makes those of all ``model_files`` of ``mlxfill_testing.architectures``."""


def tiny_model(name: str, seed: int = 0, **changes: Any) -> Any:  # noqa: ANN401 - an mlx-lm model
    """A random model of architecture ``name`` with ``changes`` to its config.

    fp32; equal seeds give equal weights.  Raises ``KeyError`` for a name that is no model file of
    mlx-lm, ``ValueError`` for a file that the table of configs does not suffice for.
    """
    config = config_of(name, **changes)
    module = importlib.import_module(f"mlx_lm.models.{name}")
    mx.random.seed(seed)
    try:
        model = module.Model(module.ModelArgs.from_dict(config))
    except Exception as error:
        message = (
            f"mlx-lm's {name}.py wants other sizes ({type(error).__name__}: {error}): give them in"
            " CHANGES of mlxfill_testing/architectures.py, or name the file in UNTRIED there"
        )
        raise ValueError(message) from error
    model.update(tree_map(_spread, model.parameters()))
    model.eval()
    mx.eval(model.parameters())
    return model


def shared_model(name: str, **changes: Any) -> Any:  # noqa: ANN401 - an mlx-lm model
    """``tiny_model``, made once for the same arguments: bind it, do not change it."""
    return _made(name, json.dumps(changes, sort_keys=True))


@cache
def _made(name: str, changes: str) -> Any:  # noqa: ANN401
    return tiny_model(name, **json.loads(changes))


def perturbed(model: Any, other: Any, scale: float, seed: int = 1) -> Any:  # noqa: ANN401
    """Give ``other`` (same architecture) the weights of ``model`` plus noise.

    ``scale`` is the noise in standard deviations of each weight.  The pair agrees some of the
    time: a drafter that is sometimes right.
    """
    mx.random.seed(seed)

    def shaken(w: mx.array) -> mx.array:
        return w + scale * mx.std(w) * mx.random.normal(w.shape)

    other.update(tree_map(shaken, model.parameters()))
    mx.eval(other.parameters())
    return other


def _spread(weight: mx.array) -> mx.array:
    """Fresh matrices are small for so few layers: scale them until logits tell tokens apart.

    What a fresh model leaves constant (norms, gates, zeroed mixers) gets noise: a block that is
    switched off would prove nothing.
    """
    if not mx.issubdtype(weight.dtype, mx.floating):
        return weight
    if weight.size > 1 and mx.all(weight == weight.flatten()[0]).item():
        return weight + 0.3 * mx.random.normal(weight.shape)
    return weight * 2.5 if weight.ndim == 2 else weight  # noqa: PLR2004
