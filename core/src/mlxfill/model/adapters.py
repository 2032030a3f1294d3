"""Several LoRA adapters on one model, of which at most one is on at a time."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import mlx.core as mx
from attrs import frozen

from mlxfill.errors import InputError, ModelError
from mlxfill.loading.adapters import WHOLE, check_adapter, put_into
from mlxfill.nearest import did_you_mean

if TYPE_CHECKING:
    import os

    import mlx.nn as nn


@frozen
class _Place:
    """Where a module sits: an attribute of a module, or an item of a list."""

    holder: Any
    key: Any

    def put(self, module: nn.Module) -> None:
        if isinstance(self.holder, list):
            self.holder[self.key] = module
        else:
            setattr(self.holder, self.key, module)


@frozen
class _Change:
    """One module of the model, as it is and as an adapter has it (which contains the former)."""

    place: _Place
    plain: nn.Module
    adapted: nn.Module


_ATTRIBUTE = "_mlxfill_adapters"
"""In a model: the ``Adapters`` of which one is on."""
_LOCK = threading.RLock()
"""Python collects a dropped run in whatever thread it comes to that: not in between."""


class Adapters:
    """Adapters as mlx-lm trains them (LoRA, DoRA), by name.

    The weights of the model exist once.  Switching exchanges the adapted modules, which costs a
    tenth of a microsecond each; a graph that was built before keeps what it was built with.
    Engines that share a model switch each other's off; they must do so in one thread.
    """

    def __init__(self, model: nn.Module) -> None:
        """``model``: mlx-lm's."""
        self._model = model
        self._changes: dict[str, list[_Change]] = {}
        self.active: str | None = None
        self._switching = False
        self._user: int | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Those that are mounted."""
        return tuple(self._changes)

    def mount(self, name: str, folder: str | os.PathLike[str]) -> None:
        """Read an adapter.  It is off until it is switched on.

        :param folder: holds ``adapter_config.json`` and ``adapters.safetensors``.
        :raises ModelNotFoundError: one of them is missing.
        :raises ModelError: it was trained for another model, or holds a whole model.
        :raises InputError: the name is taken.
        """
        if name in self._changes:
            raise InputError(f"an adapter named {name!r} is mounted already")
        if check_adapter(folder) == WHOLE:
            raise ModelError(
                f"adapter {folder} has fine_tune_type 'full', which is a model of its own: load"
                " it with --adapter-path"
            )
        self.switch(None)
        before = dict(self._model.named_modules())
        try:
            put_into(self._model, folder)
        finally:
            changes = list(self._differences(before))
            _apply(changes, on=False)
        if not changes:
            raise ModelError(f"adapter {folder} changes no layer (num_layers or keys fit none)")
        # Read now: another thread, which may generate, has none of this one's streams.
        mx.eval([change.adapted.parameters() for change in changes])
        self._changes[name] = changes

    def _differences(self, before: dict[str, nn.Module]) -> list[_Change]:
        """The topmost modules that are others than before."""
        after = dict(self._model.named_modules())
        changed = [path for path in before if after.get(path) is not before[path]]
        return [_Change(_place(after, path), before[path], after[path]) for path in changed]

    def switch(self, name: str | None, user: object = None) -> None:
        """Let one adapter be on, or none.

        :param user: who needs it, for ``leave``.
        :raises InputError: there is no such adapter.
        """
        with _LOCK:
            self._user = None if user is None else id(user)  # first: `leave` may come in between
            self._switch(name)

    def _switch(self, name: str | None) -> None:
        known = vars(self._model)
        other = known.get(_ATTRIBUTE)  # of another engine, with a run that somebody left open
        if other is not None and other is not self:
            other.switch(None)
        if name == self.active and not self._switching:
            return
        self.check(name)
        known[_ATTRIBUTE] = self  # not a parameter: past mlx's own __setattr__
        # After Ctrl-C in here a part of any may be on.
        on = [each for each in self._changes if self._switching or each == self.active]
        self._switching = True
        for each in on:
            _apply(self._changes[each], on=False)
        if name is not None:
            _apply(self._changes[name], on=True)
        self.active, self._switching = name, False
        if name is None:
            del known[_ATTRIBUTE]

    def leave(self, user: object) -> None:
        """Switch off what ``user`` needed, unless somebody has switched since.

        A run that nobody holds any more is closed whenever Python collects it: in the midst of
        another's forward.
        """
        with _LOCK:
            if self._user == id(user):
                self.switch(None)

    def check(self, name: str | None) -> None:
        """Raise ``InputError`` unless ``name`` is mounted or None."""
        if name is not None and name not in self._changes:
            known = ", ".join(map(repr, self._changes)) or "none"
            hint = did_you_mean(name, self._changes)
            raise InputError(f"no adapter {name!r} is mounted{hint}; there are: {known}")


def _apply(changes: list[_Change], *, on: bool) -> None:
    for change in changes:
        change.place.put(change.adapted if on else change.plain)


def _place(modules: dict[str, nn.Module], path: str) -> _Place:
    """Where the module at ``path`` hangs: ``model.layers.3.mlp.up_proj``."""
    holder: Any = modules[""]
    *parts, last = path.split(".")
    for part in parts:
        holder = holder[int(part)] if isinstance(holder, list) else getattr(holder, part)
    return _Place(holder, int(last) if isinstance(holder, list) else last)
