"""What is known of every plugin that is installed, or that the config names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from attrs import field, frozen

from mlxfill.config.show import entries
from mlxfill.errors import ConfigError, PluginError
from mlxfill.plugins import PluginManager, scan

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mlxfill.config import Config
    from mlxfill.plugins import Claim


State = Literal["on", "on demand", "off", "broken", "missing"]


@frozen
class Status:
    """One plugin.  ``hooks`` and ``settings`` are known of plugins that are on only.

    ``state``: ``on demand`` is off, with commands or models that can be had by their names.
    ``problem``: why it is broken, missing or of no use, in one line.  ``settings``: its
    table in the config as it holds now, each value as TOML.
    """

    name: str
    state: State
    distribution: str
    version: str
    entry_point: str
    summary: str
    hooks: tuple[str, ...]
    commands: tuple[str, ...]
    models: tuple[str, ...]
    settings: dict[str, str] = field(factory=dict)
    problem: str | None = None


def survey(config: Config) -> list[Status]:
    """All plugins: those that are on by priority, then the others by name."""
    manager = PluginManager.load(config, tolerant=True)
    catalogue = scan()
    problems = {fault.plugin: fault.message for fault in manager.faults}
    others = {*catalogue.plugins, *problems}.difference(manager.names)

    def status(name: str) -> Status:
        claims = catalogue.plugins.get(name, [])
        on = name in manager.names
        commands, models = _of(claims, catalogue.commands), _of(claims, catalogue.models)
        off: State = "on demand" if commands or models else "off"
        if name in problems:
            off = "broken" if claims else "missing"
        return Status(
            name,
            "on" if on else off,
            " and ".join(claim.distribution for claim in claims),
            " and ".join(claim.version for claim in claims),
            " and ".join(claim.target for claim in claims),
            claims[0].summary if claims else "",
            manager.hooks(name) if on else (),
            commands,
            models,
            _settings(config, manager, name) if on else {},
            _no_use(claims) if on and not manager.hooks(name) else problems.get(name),
        )

    return [status(name) for name in (*manager.names, *sorted(others))]


def mistakes_of_those_off(config: Config) -> Iterator[str]:
    """A line for each mistake in the tables of plugins that are installed and off.

    Imports these plugins, which nothing but a check does: they have to say what is legal.
    """
    enabled, installed = config.plugins.enabled, scan()
    for name in config.plugins.tables:
        if enabled is None or name in enabled or name not in installed.plugins:
            continue
        try:
            PluginManager.only(installed.plugin(name), config)
        except ConfigError as error:
            yield from str(error).splitlines()
        except PluginError as error:
            yield f"{config.where('plugins', name)}: {error}"


def _no_use(claims: list[Claim]) -> str:
    return (
        f"plugin {claims[0].name!r} ({claims[0]}) registers no hook; "
        "decorate the functions that are its hooks with @mlxfill.hookimpl"
    )


def _of(claims: list[Claim], announced: Mapping[str, list[Claim]]) -> tuple[str, ...]:
    """The commands or models that the distributions behind ``claims`` announce."""
    owners = {(claim.distribution, claim.target) for claim in claims}
    return tuple(
        sorted(
            name
            for name, others in announced.items()
            if any((other.distribution, other.target) in owners for other in others)
        )
    )


def _settings(config: Config, manager: PluginManager, name: str) -> dict[str, str]:
    prefix = f"plugins.{name}."
    return {
        entry.key.removeprefix(prefix): entry.value
        for entry in entries(config, {name: manager.settings(name)})
        if entry.key.startswith(prefix)
    }
