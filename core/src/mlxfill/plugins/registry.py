"""Plugins and their hook implementations, in order.  The only module that touches pluggy."""

from __future__ import annotations

from inspect import isroutine
from typing import TYPE_CHECKING, Any, TypeVar

import pluggy

from mlxfill import hookspecs
from mlxfill.nearest import did_you_mean
from mlxfill.plugins.faults import one_line, recorded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from mlxfill.contracts import Fault

T = TypeVar("T")

HOOKS = tuple(name for name in vars(hookspecs) if name.startswith("mlxfill_"))


class UnfitError(Exception):
    """A plugin cannot be used; the message continues a sentence that begins with its name."""


class Registry:
    """Holds plugins in the order in which they were added.

    ``settings``: by plugin, what its hooks get as the argument ``settings``.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self.settings: dict[str, Any] = {}
        self._pluggy = pluggy.PluginManager(hookspecs.PROJECT)
        self._pluggy.add_hookspecs(hookspecs)

    def add(self, name: str, plugin: object) -> None:
        """Register a module or an object under a new name.

        :raises UnfitError: a hook is misspelt or not marked, takes an argument that its
            specification does not have, or wraps others.  Nothing is registered then.
        """
        try:
            self._pluggy.register(plugin, name)
            self._check_pending()
            self._check_wrappers(plugin)
            self._check_marks(plugin)
        except UnfitError:
            self._pluggy.unregister(name=name)
            raise
        except Exception as error:
            if self._pluggy.has_plugin(name):
                self._pluggy.unregister(name=name)
            raise UnfitError(f"cannot be registered: {one_line(error)}") from error
        self.names.append(name)

    def remove(self, name: str) -> None:
        """Forget a plugin."""
        self._pluggy.unregister(name=name)
        self.names.remove(name)

    def rank(self) -> None:
        """Order by the plugins' own word instead: ``tryfirst`` in front, ``trylast`` at the end.

        A mark at one hook counts for the plugin; those of one rank stay as they were added.
        """
        self.names.sort(key=self._rank)

    def hooks_of(self, name: str) -> list[str]:
        """The hooks that a plugin implements, in the order in which they fire."""
        callers = self._pluggy.get_hookcallers(self._pluggy.get_plugin(name)) or []
        return [hook for hook in HOOKS if hook in {caller.name for caller in callers}]

    def ask(  # noqa: PLR0913 - one call, and what becomes of its outcome
        self,
        hook: str,
        read: Callable[[Any], T],
        faults: list[Fault],
        arguments: Mapping[str, object],
        only: str | None = None,
        *,
        passing: tuple[type[Exception], ...] = (),
    ) -> Iterator[tuple[str, T]]:
        """Call a hook, plugin by plugin, as far as the caller goes on asking.

        :param read: checks an answer, raising if it is nonsense, and gives it back typed.
        :param faults: gets what plugins raise.
        :param only: a single plugin to ask.
        :param passing: exceptions that go to the caller instead.
        :returns: plugin and answer; those that answer None are left out.
        """
        for impl in self._implementations(hook):
            if only not in (None, impl.plugin_name):
                continue
            given = {**arguments, "settings": self.settings.get(impl.plugin_name)}
            answers: list[T] = []
            with recorded(impl.plugin_name, hook, faults, passing):
                answer = impl.function(*(given[name] for name in impl.argnames))
                if answer is not None:
                    answers.append(read(answer))
            for one in answers:
                yield impl.plugin_name, one

    def _implementations(self, hook: str) -> list[pluggy.HookImpl]:
        """Those of the plugin that was added first in front.

        pluggy itself would call the newest first, and those marked ``tryfirst`` before all.
        """
        caller: pluggy.HookCaller = getattr(self._pluggy.hook, hook)
        order = {name: position for position, name in enumerate(self.names)}
        return sorted(
            (impl for impl in caller.get_hookimpls() if impl.plugin_name in order),
            key=lambda impl: order[impl.plugin_name],
        )

    def _rank(self, name: str) -> int:
        callers = self._pluggy.get_hookcallers(self._pluggy.get_plugin(name)) or []
        own = [i for caller in callers for i in caller.get_hookimpls() if i.plugin_name == name]
        return any(impl.trylast for impl in own) - any(impl.tryfirst for impl in own)

    def _check_marks(self, plugin: object) -> None:
        """Without its mark a function is none of pluggy's business, whatever its name."""
        for hook in HOOKS:
            marked = self._pluggy.parse_hookimpl_opts(plugin, hook) is not None
            if isroutine(getattr(plugin, hook, None)) and not marked:
                raise UnfitError(
                    f"registers no hook {hook!r}: decorate that function with @mlxfill.hookimpl"
                )

    def _check_pending(self) -> None:
        try:
            self._pluggy.check_pending()
        except pluggy.PluginValidationError as error:
            callers = self._pluggy.get_hookcallers(error.plugin) or []
            unknown = next(caller.name for caller in callers if not caller.has_spec())
            hint = did_you_mean(unknown, HOOKS)
            raise UnfitError(f"has an unknown hook {unknown!r}{hint}") from error

    def _check_wrappers(self, plugin: object) -> None:
        for caller in self._pluggy.get_hookcallers(plugin) or []:
            for impl in caller.get_hookimpls():
                if impl.plugin is plugin and (impl.wrapper or impl.hookwrapper):
                    raise UnfitError(f"wraps the hook {caller.name!r}; wrappers are not supported")
