"""LoRA and DoRA adapters as mlx-lm trains them: their files, and putting one into a model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from mlxfill.errors import ModelError, ModelNotFoundError, reason
from mlxfill.loading.files import check_header, read_json
from mlxfill.rules import is_whole

if TYPE_CHECKING:
    import os

    from mlx import nn

CONFIG, WEIGHTS = "adapter_config.json", "adapters.safetensors"
WHOLE = "full"
"""The ``fine_tune_type`` of an adapter that holds all weights of a model."""
PARAMETERS = ("rank", "scale", "dropout")
SHOWN = 2
"""How many tensors an error names."""


def check_adapter(folder: str | os.PathLike[str]) -> str:
    """The ``fine_tune_type`` of an adapter whose files are there and whole.

    :raises ModelNotFoundError: one of them is missing.
    :raises ModelError: one of them is broken, or the config is not of mlx-lm's form.
    """
    if not str(folder):
        raise ModelNotFoundError("the folder of the adapter is empty: name one, or leave it out")
    for file in (CONFIG, WEIGHTS):
        if not (Path(folder) / file).is_file():
            raise ModelNotFoundError(f"adapter {folder}: no {file} there")
    try:
        config = read_json(Path(folder) / CONFIG)
        check_header(Path(folder) / WEIGHTS)
    except ModelError as error:
        raise ModelError(f"adapter {error}") from error.__cause__
    lacking = _lacking(config)
    if lacking:
        raise ModelError(
            f"adapter {Path(folder) / CONFIG} {lacking}: it is not of the form that mlx-lm's"
            " training writes"
        )
    return str(config.get("fine_tune_type", "lora"))


def _lacking(config: object) -> str:
    """What mlx-lm needs and does not find in an adapter's config, "" for nothing."""
    if not isinstance(config, Mapping):
        return "is no JSON object"
    if config.get("fine_tune_type") == WHOLE:
        return ""
    if not is_whole(config.get("num_layers")):
        return "has no num_layers"
    parameters = config.get("lora_parameters")
    if not isinstance(parameters, Mapping):
        return "has no lora_parameters"
    missing = [name for name in PARAMETERS if name not in parameters]
    return f"has no lora_parameters.{missing[0]}" if missing else ""


def put_into(model: nn.Module, folder: str | os.PathLike[str]) -> None:
    """Let mlx-lm change the model in place.

    :raises ModelError: the adapter was made for another model; names what does not fit.
    """
    from mlx_lm.tuner.utils import load_adapters

    training = model.training
    try:
        load_adapters(model, str(folder))
    except Exception as error:
        raise ModelError(f"adapter {folder} does not fit this model: {_said(error)}") from error
    model.train(training)


def _said(error: Exception) -> str:
    """mlx-lm's reason, with the first of the tensors that it lists below it."""
    _, *tensors = str(error).splitlines() or [""]
    if not tensors:
        return reason(error)
    left = len(tensors) - SHOWN
    more = f"; and {left} more tensor{'s' * (left > 1)}" if left > 0 else ""
    return "; ".join(tensor.strip() for tensor in tensors[:SHOWN]) + more
