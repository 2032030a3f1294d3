"""Hooks in a model that is not ours: hand back a body's output, record layer calls.

Giving an *instance* a dynamic subclass of its own class reroutes its ``__call__`` and
leaves everything else (parameters, ``isinstance``, saving) as it was.  It has that class only
while a hook is in use, so that a plain step runs the model as it is.  The hooks of one
model are shared by all engines that bind it and forgotten with the last of them.  What a
hook does is decided per thread, so that engines in two threads do not see each other.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from attrs import define, field

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    import mlx.core as mx
    import mlx.nn as nn


@define
class LayerCall:
    """One call of one decoder layer while a tape ran."""

    layer: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    output: Any = None


@define
class Tape:
    """The layer calls of one forward, in order."""

    calls: list[LayerCall] = field(factory=list)


class _Mode(threading.local):
    """What the hooks of one model do in this thread."""

    stash: mx.array | None = None
    tape: Tape | None = None
    capturing = False
    hidden: Any = None


@define(eq=False)
class _Hooked:
    """A module with its own class and the hooked one, and who is using that."""

    module: nn.Module
    own: type
    hooked: type
    users: set[object] = field(factory=set)

    def use(self, user: object) -> None:
        """Give it the hooked class."""
        self.users.add(user)
        self.module.__class__ = self.hooked

    def leave(self, user: object) -> None:
        """The last one to leave gives it its own class back."""
        self.users.discard(user)
        if not self.users:
            self.module.__class__ = self.own


_LOCK = threading.Lock()
_ATTRIBUTE = "_mlxfill_hooks"


class ModelHooks:
    """The hooks of one model; in a module only while its own hook is in use."""

    def __init__(self, body: nn.Module | None, layers: list[nn.Module]) -> None:
        """Prepare: ``body`` None leaves the body alone."""
        self.mode = _Mode()
        self.users = 0
        self._lock = threading.Lock()
        self._body = [] if body is None else [_hooked(body, _body_call, self.mode)]
        self._layers = {id(each): _hooked(each, _layer_call, self.mode) for each in layers}

    def __deepcopy__(self, _: object) -> None:
        """A copy of the model has no hooks: whoever uses it binds it."""

    @contextmanager
    def _installed(self, chosen: Collection[_Hooked]) -> Iterator[None]:
        """Hook the modules chosen inside the block, also if Ctrl-C comes half-way."""
        user = object()
        try:
            with self._lock:
                for each in chosen:
                    each.use(user)
            yield
        finally:
            with self._lock:
                for each in chosen:
                    each.leave(user)

    @contextmanager
    def taping(self, layers: Sequence[nn.Module] = ()) -> Iterator[Tape]:
        """Record the calls of ``layers`` (none named: of all) inside the block, in this thread."""
        outer, tape = self.mode.tape, Tape()
        chosen = [self._layers[id(layer)] for layer in layers] or self._layers.values()
        self.mode.tape = tape
        try:
            with self._installed(chosen):
                yield tape
        finally:
            self.mode.tape = outer

    @contextmanager
    def standing_in(self, hidden: mx.array) -> Iterator[None]:
        """Let the body answer ``hidden`` ``[B, L, H]`` at once inside the block."""
        self.mode.stash = hidden
        try:
            with self._installed(self._body):
                yield
        finally:
            self.mode.stash = None

    @contextmanager
    def capturing(self) -> Iterator[_Mode]:
        """Keep the body's output as ``.hidden`` of the yielded object."""
        self.mode.capturing = True
        try:
            with self._installed(self._body):
                yield self.mode
        finally:
            self.mode.capturing = False
            self.mode.hidden = None


def _hooked(module: nn.Module, make: Any, mode: _Mode) -> _Hooked:  # noqa: ANN401
    own = type(module)
    hooked = type(own.__name__, (own,), {"__call__": make(own, mode)})
    hooked.__module__, hooked.__qualname__ = own.__module__, own.__qualname__
    return _Hooked(module, own, hooked)


def _body_call(original: type, mode: _Mode) -> Any:  # noqa: ANN401
    inner = original.__call__

    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401, N807
        if mode.stash is not None:
            return mode.stash
        output = inner(self, *args, **kwargs)
        if mode.capturing:
            mode.hidden = output
        return output

    return __call__


def _layer_call(original: type, mode: _Mode) -> Any:  # noqa: ANN401
    inner = original.__call__

    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401, N807
        tape = mode.tape
        if tape is None:
            return inner(self, *args, **kwargs)
        call = LayerCall(
            self, tuple(map(_as_given, args)), {k: _as_given(v) for k, v in kwargs.items()}
        )
        tape.calls.append(call)
        call.output = inner(self, *args, **kwargs)
        return call.output

    return __call__


def _as_given(value: Any) -> Any:  # noqa: ANN401
    """An argument as it is now: layers write into a dictionary that they share."""
    return dict(value) if isinstance(value, dict) else value


def acquire(model: nn.Module, body: nn.Module | None, layers: list[nn.Module]) -> ModelHooks:
    """The model's hooks, installed by the first caller."""
    with _LOCK:
        hooks: ModelHooks | None = vars(model).get(_ATTRIBUTE)
        if hooks is None:
            hooks = ModelHooks(body, layers)
            vars(model)[_ATTRIBUTE] = hooks  # not a parameter: past mlx's own __setattr__
        hooks.users += 1
        return hooks


def release(model: nn.Module) -> None:
    """Give the hooks back; the last caller removes them."""
    with _LOCK:
        hooks: ModelHooks | None = vars(model).get(_ATTRIBUTE)
        if hooks is None:
            return
        hooks.users -= 1
        if hooks.users == 0:
            del vars(model)[_ATTRIBUTE]
