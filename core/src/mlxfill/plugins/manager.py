"""Which plugins are on, in which order, with which settings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from mlxfill.contracts import Fault
from mlxfill.errors import ConfigError, InputError, MlxfillError, PluginError
from mlxfill.plugins import answers
from mlxfill.plugins.advice import missing, to_install, to_switch_on
from mlxfill.plugins.discovery import scan
from mlxfill.plugins.faults import one_line
from mlxfill.plugins.hooks import Hooks
from mlxfill.plugins.registry import UnfitError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from mlxfill.config import Config
    from mlxfill.plugins.discovery import Catalogue, Claim


class PluginManager(Hooks):
    """The plugins that are on, and their hooks.

    A host of its own, without anything installed::

        manager = PluginManager([("again", AgainPlugin())])
        for plugin, source in manager.proposal_sources(request, faults):
            ...

    ``faults``: what went wrong before any request, such as plugins that were skipped.
    """

    def __init__(
        self,
        plugins: Iterable[tuple[str, object]] = (),
        *,
        config: Config | None = None,
        catalogue: Catalogue | None = None,
    ) -> None:
        """Switch on modules or objects that carry hook implementations.

        :param plugins: names and objects, the one with the highest priority first.
        :param config: holds their settings; None for the defaults.
        :param catalogue: what is installed, to resolve model names of plugins that are off.
        :raises PluginError: one has a misspelt hook, or breaks when asked for its settings class.
        :raises ConfigError: the table of one is wrong.
        """
        super().__init__()
        self._config = config
        self._catalogue = catalogue
        for name, plugin in plugins:
            self._switch_on(name, plugin, None)

    @classmethod
    def load(
        cls, config: Config, names: Sequence[str] | None = None, *, tolerant: bool = False
    ) -> PluginManager:
        """Import and switch on installed plugins.

        :param names: plugins in priority order, ``[]`` for none; None for those that the config
            lists, and when it lists none, for all that are installed: first those that mark a
            hook ``tryfirst``, last those that mark one ``trylast``, else by name.
        :param tolerant: skip and report even what would stop the start.
        :raises PluginError: a plugin that ``names`` or the config names is missing, broken or
            doubled, or that the config trusts is missing; one line each.
        :raises ConfigError: the table of one is wrong; one line for each mistake.
        :raises InputError: ``names`` is no list of names.
        """
        names = None if names is None else _listed(names)
        catalogue = scan()
        manager = cls(config=config, catalogue=catalogue)
        manager.faults += catalogue.unreadable
        errors = list(manager._load(config, catalogue, names))
        if errors and not tolerant:
            raise type(errors[0][1])("\n".join(str(error) for _, error in errors))
        manager.faults += [Fault(name, "start", str(error)) for name, error in errors]
        return manager

    @classmethod
    def only(cls, claim: Claim, config: Config | None) -> PluginManager:
        """One plugin, on or not, because the user named a command or a model of it.

        :raises PluginError: it is broken.
        :raises ConfigError: its table in the config is wrong.
        """
        manager = cls(config=config)
        manager._switch_on(claim.name, claim.load(), claim)
        return manager

    @property
    def names(self) -> tuple[str, ...]:
        """The plugins that are on, by priority."""
        return tuple(self._registry.names)

    def is_off(self, name: str) -> bool:
        """Whether a plugin is installed, but not on."""
        installed = self._catalogue.plugins if self._catalogue else {}
        return name in installed and name not in self.names

    def remedy(self, *names: str) -> str:
        """How to have one of these plugins of this project, "" when all of them are on."""
        off = [name for name in names if self.is_off(name)]
        if off:
            return to_switch_on(off)
        return " or ".join(to_install(name) for name in names if name not in self.names)

    def hooks(self, name: str) -> tuple[str, ...]:
        """The hooks that a plugin implements, in the order in which they fire."""
        return tuple(self._registry.hooks_of(name))

    def settings(self, name: str) -> Any:  # noqa: ANN401 - each plugin's own class
        """A plugin's settings: an instance of its own class, None when it has no such class."""
        return self._registry.settings.get(name)

    def resolve_model(self, name: str, faults: list[Fault] | None = None) -> Path | None:
        """The folder of a model, from the first plugin that knows its name.

        When none of those that are on does, the one that announces this very name is asked.

        :raises PluginError: that one is broken or doubled.
        """
        found = super().resolve_model(name, faults)
        claims = self._catalogue.models.get(name) if self._catalogue else None
        if found or not claims or not self._catalogue:
            return found
        guest = PluginManager.only(self._catalogue.owner("model", claims), self._config)
        return guest.resolve_model(name, self.faults if faults is None else faults)

    # --- switching on -------------------------------------------------------------

    def _load(
        self, config: Config, catalogue: Catalogue, names: Sequence[str] | None
    ) -> Iterator[tuple[str, MlxfillError]]:
        """Switch on what is wanted; yield what must stop the start, note what need not."""
        tables, installed = config.plugins.tables, catalogue.plugins
        listed = config.plugins.enabled if names is None else names
        wanted = sorted(installed) if listed is None else list(listed)
        for name in [*wanted, *(t for t in tables if t not in installed and t not in wanted)]:
            try:
                claim = catalogue.plugin(name)
                self._switch_on(name, claim.load(), claim)
            except ConfigError as error:
                failure: MlxfillError = error
            except PluginError as error:
                failure = PluginError(f"{_naming(config, names, name)}{error}")
            else:
                continue
            if listed is None and name not in tables:
                self.faults.append(Fault(name, "start", str(failure)))
            else:
                yield name, failure
        if listed is None:
            self._registry.rank()
        if "trust.assert" in config.sources:
            for name in config.trust.assert_:
                if name not in installed:
                    where = config.where("trust", "assert")
                    yield name, PluginError(f"{where}: {missing(name, installed)}")

    def _switch_on(self, name: str, plugin: object, claim: Claim | None) -> None:
        """Register a plugin and read its settings, or raise and leave no trace of it."""
        if name in self.names:
            raise PluginError(f"plugin {name!r} is listed twice; list it once")
        try:
            self._registry.add(name, plugin)
            try:
                self._registry.settings[name] = self._read_settings(name)
            except BaseException:
                self._registry.remove(name)
                raise
        except UnfitError as error:
            cause = str(error)
            raise (
                claim.broken(cause) if claim else PluginError(f"plugin {name!r} {cause}")
            ) from error

    def _read_settings(self, name: str) -> Any:  # noqa: ANN401 - each plugin's own class
        faults: list[Fault] = []
        found = self._registry.ask("mlxfill_settings", answers.settings_class, faults, {}, name)
        kind = next((answer for _, answer in found), None)
        if faults:
            raise UnfitError(f"fails in mlxfill_settings: {faults[0].message}")
        try:
            if self._config is not None:
                return self._config.plugin_settings(name, kind)
            return kind and kind()
        except ConfigError:
            raise
        except Exception as error:
            raise UnfitError(f"has a broken settings class: {one_line(error)}") from error


def _listed(names: object) -> list[str]:
    listed = list(names) if isinstance(names, Iterable) and not isinstance(names, str) else [names]
    found = [name for name in listed if isinstance(name, str)]
    if isinstance(names, str) or len(found) < len(listed):
        raise InputError(f"plugins must be a list of names, not {names!r}")
    return found


def _naming(config: Config, names: Sequence[str] | None, plugin: str) -> str:
    """Where the config names a plugin, as the beginning of an error."""
    if plugin in (names or ()):
        return ""
    if names is None and plugin in (config.plugins.enabled or ()):
        return f"{config.where('plugins', 'enabled')}: "
    return f"{config.where('plugins', plugin)}: " if plugin in config.plugins.tables else ""
