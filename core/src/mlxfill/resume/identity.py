"""What a checkpoint must meet again to go on: the weights, and how its plugins were set."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
from attrs import frozen

from mlxfill.checkpoint.serialize import packed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from mlxfill.config import Config
    from mlxfill.plugins import PluginManager


@frozen
class Identity:
    """What of an engine a checkpoint names, to meet it again.

    ``fingerprint``: a hash of the weights under an adapter; ``made_by``: arguments of
    ``mlxfill.load``, where they are known.
    """

    config: Config
    plugins: PluginManager
    fingerprint: Callable[[str | None], str]
    made_by: Mapping[str, Any]

    def settings_of(self, plugins: Iterable[str]) -> dict[str, Any]:
        """The settings of some plugins, in a form that can be stored and compared."""
        settings = self.plugins.settings
        return {name: packed(_settings(settings(name)), name, {}) for name in sorted(plugins)}

    def recipe(self) -> dict[str, Any]:
        """How to make the engine again: arguments of ``mlxfill.load`` and what its config says."""
        config, plugins = self.config, self.plugins
        tables = {name: config.plugins.tables.get(name, {}) for name in plugins.names}
        made_by = {"draft": config.draft, "draft_kind": config.draft_kind}
        made_by |= {name: value for name, value in self.made_by.items() if value is not None}
        return {
            **made_by,
            "plugins": list(plugins.names),
            "config": {
                "plugins": packed(tables, "plugins", {}),
                "trust": list(config.trust.assert_),
                "gate": config.gate.enabled,
            },
        }


def lasting(name: str | os.PathLike[str] | None) -> str | None:
    """A folder by its whole path, whatever the working folder is later; other names as they are."""
    if name is None:
        return None
    folder = Path(name).expanduser()
    return str(folder.resolve()) if folder.is_dir() else str(name)


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


def _settings(instance: attrs.AttrsInstance | None) -> Mapping[str, Any]:
    return {} if instance is None else attrs.asdict(instance, value_serializer=_serialized)


def _serialized(_: Any, __: Any, value: Any) -> Any:  # noqa: ANN401 - as attrs hands it
    """Settings are compared, not used: what is no plain value stands as its text."""
    if isinstance(value, set | frozenset):  # of which each process has its own order
        return sorted(map(str, value))
    plain = value is None or isinstance(value, bool | int | float | str | list | tuple | dict)
    return value if plain else str(value)
