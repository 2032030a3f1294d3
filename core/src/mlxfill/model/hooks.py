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
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import define, field

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from contextlib import AbstractContextManager

    import mlx.core as mx
    import mlx.nn as nn

T = TypeVar("T")


@define
class LayerCall:
    """One call of one decoder layer while a tape ran."""

    layer: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    output: Any = None


@define
class LayerTrace:
    """The layer calls of one forward, in order."""

    calls: list[LayerCall] = field(factory=list)


@define
class Capture:
    """The body's output in one forward."""

    hidden: Any = None


class _Mode(threading.local):
    """What the hooks of one model do in this thread."""

    stash: mx.array | None = None
    tape: LayerTrace | None = None
    capture: Capture | None = None


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
        _set_class(self.module, self.hooked)

    def leave(self, user: object) -> None:
        """The last one to leave gives it its own class back."""
        self.users.discard(user)
        if not self.users:
            _set_class(self.module, self.own)


def _set_class(module: nn.Module, cls: type) -> None:
    """Past mlx's own ``__setattr__``, which takes longer than a layer's hook."""
    object.__setattr__(module, "__class__", cls)


_LOCK = threading.Lock()
_ATTRIBUTE = "_mlxfill_hooks"


class ModelHooks:
    """The hooks of one model; in a module only while its own hook is in use."""

    def __init__(self, body: nn.Module | None, layers: list[nn.Module]) -> None:
        """Prepare: ``body`` None leaves the body alone."""
        self.mode = _Mode()
        self.users = 0
        self._lock = threading.RLock()  # a run that is collected in here may need the hooks
        self._body = [] if body is None else [_hooked(body, _body_call, self.mode)]
        self._layers = {id(each): _hooked(each, _layer_call, self.mode) for each in layers}

    def __deepcopy__(self, _: object) -> None:
        """A copy of the model has no hooks: whoever uses it binds it."""

    def taping(self, layers: Sequence[nn.Module] = ()) -> AbstractContextManager[LayerTrace]:
        """Record the calls of ``layers`` (none named: of all) inside the block, in this thread."""
        chosen = [self._layers[id(layer)] for layer in layers] or self._layers.values()
        return self._in_use(chosen, "tape", LayerTrace())

    def standing_in(self, hidden: mx.array) -> AbstractContextManager[mx.array]:
        """Let the body answer ``hidden`` ``[B, L, H]`` at once inside the block."""
        return self._in_use(self._body, "stash", hidden)

    def capturing(self) -> AbstractContextManager[Capture]:
        """Keep the body's output inside the block."""
        return self._in_use(self._body, "capture", Capture())

    @contextmanager
    def _in_use(self, chosen: Collection[_Hooked], what: str, value: T) -> Iterator[T]:
        """Hook the modules chosen inside the block, also if Ctrl-C comes half-way.

        A module that it leaves hooked does what its own class does, once nothing is wanted of it.
        """
        user, outer = object(), getattr(self.mode, what)
        try:
            setattr(self.mode, what, value)
            with self._lock:
                for each in chosen:
                    each.use(user)
            yield value
        finally:
            setattr(self.mode, what, outer)
            with self._lock:
                for each in chosen:
                    each.leave(user)


def _hooked(module: nn.Module, make: Callable[..., Any], mode: _Mode) -> _Hooked:
    own = type(module)
    hooked = type(own.__name__, (own,), {"__call__": make(own, mode)})
    hooked.__module__, hooked.__qualname__ = own.__module__, own.__qualname__
    return _Hooked(module, own, hooked)


def _body_call(original: type, mode: _Mode) -> Callable[..., Any]:
    inner = original.__call__

    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401, N807
        if mode.stash is not None:
            return mode.stash
        output = inner(self, *args, **kwargs)
        if mode.capture is not None:
            mode.capture.hidden = output
        return output

    return __call__


def _layer_call(original: type, mode: _Mode) -> Callable[..., Any]:
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
