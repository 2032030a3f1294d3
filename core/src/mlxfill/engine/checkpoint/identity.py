"""What a checkpoint must meet again to go on: the weights, and how its plugins were set."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import mlx.core as mx

from mlxfill.engine.checkpoint.plain import packed
from mlxfill.model.reading import ids, parameters

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mlxfill.engine.engine import Engine

_UNSIGNED = {1: mx.uint8, 2: mx.uint16, 4: mx.uint32, 8: mx.uint64}


def fingerprint(model: Any) -> str:  # noqa: ANN401 - an mlx module
    """A hash of names, shapes, dtypes and the bits of all weights, adapters included.

    The bits of an array are added up as whole numbers: one pass over the weights on the device,
    the same on every machine.
    """
    named = parameters(model)
    sums = ids(mx.stack([_sum(array) for _, array in named])) if named else []
    facts = [
        (name, list(array.shape), str(array.dtype), total)
        for (name, array), total in zip(named, sums, strict=True)
    ]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def _sum(array: mx.array) -> mx.array:
    """The bits of an array as unsigned numbers, added up modulo 2**32."""
    flat = array.flatten()
    bits = mx.view(flat, _UNSIGNED[array.dtype.size]) if array.dtype != mx.bool_ else flat
    return bits.astype(mx.uint32).sum()


def settings_of(engine: Engine, plugins: Iterable[str]) -> dict[str, Any]:
    """The settings of some plugins, in a form that can be stored and compared."""
    return {
        name: packed(_settings(engine.plugins.settings(name)), name, {}) for name in sorted(plugins)
    }


def lasting(name: str | os.PathLike[str] | None) -> str | None:
    """A folder by its whole path, whatever the working folder is later; other names as they are."""
    if name is None:
        return None
    folder = Path(name).expanduser()
    return str(folder.resolve()) if folder.is_dir() else str(name)


def recipe(engine: Engine) -> dict[str, Any]:
    """How to make the engine again: arguments of ``mlxfill.load`` and what its config says."""
    config, plugins = engine.config, engine.plugins
    tables = {name: config.plugins.tables.get(name, {}) for name in plugins.names}
    made_by = {"draft": config.draft, "draft_kind": config.draft_kind}
    made_by |= {name: value for name, value in engine.made_by.items() if value is not None}
    return {
        **made_by,
        "plugins": list(plugins.names),
        "config": {
            "plugins": packed(tables, "plugins", {}),
            "trust": list(config.trust.assert_),
            "gate": config.gate.enabled,
        },
    }


def other_weights(then: Mapping[str, Any], now: Mapping[str, Any], adapter: str | None) -> str:
    """What is known of weights that are not those that a checkpoint was written with.

    :param then: what its engine was made with, as ``recipe`` says; ``now``: the same of this one.
    :param adapter: name of the adapter that the request is under.
    """
    model, path, ours = then.get("model"), then.get("adapter_path"), now.get("adapter_path")
    same = model is not None and model == now.get("model")
    if same and path and path != ours:
        return f"it was written under the adapter {path}: load the model with adapter_path={path!r}"
    if same and ours and not path:
        return f"it was written without the adapter {ours}: load the model without adapter_path"
    which = "the same model" if same else "another model"
    named = f"{model} with the adapter {path}" if path else model
    whose = f" ({named})" if model else ""
    under = f", or of another adapter {adapter!r}" if adapter else ""
    return f"it is of {which}{whose}, with other weights{under}"


def _settings(instance: Any) -> Mapping[str, Any]:  # noqa: ANN401 - each plugin's own class
    return {} if instance is None else attrs.asdict(instance, value_serializer=_serialized)


def _serialized(_: Any, __: Any, value: Any) -> Any:  # noqa: ANN401 - as attrs hands it
    """Settings are compared, not used: what is no plain value stands as its text."""
    if isinstance(value, set | frozenset):  # of which each process has its own order
        return sorted(map(str, value))
    plain = value is None or isinstance(value, bool | int | float | str | list | tuple | dict)
    return value if plain else str(value)
