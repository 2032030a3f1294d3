"""From the name of a model to an engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mlxfill.config import load_config
from mlxfill.engine.engine import Engine
from mlxfill.engine.find_model import find
from mlxfill.errors import CheckpointError
from mlxfill.loading.given import check_name
from mlxfill.loading.model import context_limit, load_model
from mlxfill.plugins import PluginManager
from mlxfill.resume.identity import lasting

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    import mlx.core as mx

    from mlxfill.config import Config


def load(  # noqa: PLR0913
    model: str | os.PathLike[str],
    *,
    draft: str | os.PathLike[str] | None = None,
    draft_kind: str | None = None,
    num_draft_tokens: int | None = None,
    plugins: Sequence[str] | None = None,
    config: Config | str | os.PathLike[str] | Mapping[str, Any] | None = None,
    adapter_path: str | None = None,
    adapters: Mapping[str, str | os.PathLike[str]] | None = None,
    group: mx.distributed.Group | None = None,
) -> Engine:
    """Load a model by folder, name of an installed model plugin, or hub id.

    :param draft: folder or name of a drafter, or ``"auto"`` for the best that lies on this machine
        for the model, as ``mlxfill drafters`` lists them; ``draft_kind`` says how to draft with it,
        where that is not found out from its files.
    :param num_draft_tokens: most tokens that it guesses at once, 0 for no drafts.
    :param plugins: names in priority order; [] for none; None for what the config says.
    :param config: a config file, a mapping with its content, or None for the usual places.
    :param adapter_path: folder of a LoRA adapter that is on for all requests.
    :param adapters: names and folders of LoRA adapters that requests switch on: ``adapters="sql"``.
    :param group: ranks that share the model, each holding a slice of it; None: this process alone.
    :raises ModelError, ConfigError, PluginError, DrafterError: each one line, with the remedy.
    """
    check_name(model)
    settled = load_config(config)
    manager = PluginManager.load(settled, plugins)
    path = find(manager, model)
    loaded, tokenizer, model_config = load_model(path, adapter_path, group)
    engine = Engine(
        loaded,
        tokenizer,
        plugins=manager,
        config=settled,
        draft=draft,
        draft_kind=draft_kind,
        num_draft_tokens=num_draft_tokens,
        path=path,
        context=context_limit(model_config),
        group=group,
    )
    engine.made_by.update(
        {
            "model": lasting(model),
            "adapter_path": lasting(adapter_path),
            "adapters": {name: lasting(folder) for name, folder in (adapters or {}).items()},
            "draft": lasting(draft),
            "draft_kind": draft_kind,
            "num_draft_tokens": num_draft_tokens,
        }
    )
    try:
        for name, folder in (adapters or {}).items():
            engine.mount_adapter(name, folder)
    except BaseException:
        engine.close()
        raise
    return engine


def load_again(origin: Mapping[str, Any], *, model: str | None = None) -> Engine:
    """The engine that ``recipe`` described, to go on from a checkpoint.

    :param model: where the model is now, if not where it was.
    :raises CheckpointError: nobody knows which model it was.
    :raises ModelError, ConfigError, PluginError, DrafterError: as ``mlxfill.load``.
    """
    from mlxfill.checkpoint.serialize import unpacked

    arguments = dict(origin)
    stored, names = arguments.pop("config"), arguments["plugins"]
    found = model or arguments.pop("model", None)
    if found is None:
        raise CheckpointError("the checkpoint does not say where its model is: give --model NAME")
    arguments.pop("model", None)
    tables = unpacked(stored["plugins"], {})
    config = {
        "plugins": {"enabled": names, **{name: table for name, table in tables.items() if table}},
        "trust": {"assert": stored["trust"]},
        "gate": {"enabled": stored["gate"]},
    }
    return load(found, config=config, **arguments)
