"""What installed distributions offer, read from their metadata without importing them.

Four entry-point groups, all pointing at plugin modules::

    [project.entry-points.mlxfill]              # the plugin
    again = "mlxfill_again.plugin"
    [project.entry-points."mlxfill.commands"]   # commands that it adds to `mlxfill`
    repeat = "mlxfill_again.plugin"
    "plugins repeat" = "mlxfill_again.plugin"   # or to one of its groups
    [project.entry-points."mlxfill.models"]     # model names that it resolves
    parrot = "mlxfill_again.plugin"
    [project.entry-points."mlxfill.chat"]       # options of `mlxfill chat` for talks elsewhere
    url = "mlxfill_again.plugin:converse"

The others let a user name a command, a model or a place without the plugin being switched on,
and let `mlxfill --help` list commands without importing anything.
"""

from __future__ import annotations

import re
import sys
from importlib.metadata import Distribution, EntryPoint, distributions
from typing import TYPE_CHECKING

from attrs import field, frozen

from mlxfill.contracts import MLXFILL_API, Fault
from mlxfill.errors import PluginError
from mlxfill.hookspecs import PROJECT
from mlxfill.installing import pip_install
from mlxfill.nearest import full_names
from mlxfill.plugins.advice import missing
from mlxfill.plugins.authored import authors_cure
from mlxfill.plugins.faults import one_line, recorded

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

COMMANDS = f"{PROJECT}.commands"
MODELS = f"{PROJECT}.models"
CHAT = f"{PROJECT}.chat"
GROUPS = (PROJECT, COMMANDS, MODELS, CHAT)


@frozen
class Claim:
    """A name that an installed distribution claims in one of the groups."""

    name: str
    target: str
    distribution: str
    version: str
    summary: str = field(eq=False)
    entry_point: EntryPoint = field(eq=False, repr=False)

    def __str__(self) -> str:
        return f"{self.distribution} {self.version}, entry point {self.target}"

    def load(self) -> object:
        """Import the plugin.

        :raises PluginError: it cannot be imported, or was written for other contracts.
        """
        try:
            plugin = self.entry_point.load()
            module = sys.modules[self.entry_point.module]
            api = getattr(plugin, "MLXFILL_API", getattr(module, "MLXFILL_API", None))
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise self.broken(f"cannot be imported: {one_line(error)}", error=error) from error
        if api != MLXFILL_API:
            said = "states no MLXFILL_API" if api is None else f"is written for API {api!r}"
            newer = type(api) is int and api > MLXFILL_API
            cure = pip_install(PROJECT, options="--upgrade") if newer else None
            raise self.broken(f"{said}, this mlxfill has API {MLXFILL_API}", cure)
        return plugin

    def broken(
        self, cause: str, cure: str | None = None, *, error: BaseException | None = None
    ) -> PluginError:
        """The one line about a plugin that cannot be used.

        :param cure: a command; None for what installs the plugin anew, or, where it was installed
            from a folder, for what its author has to mend.
        :param error: what the plugin raised.
        """
        told = f"plugin {self.name!r} ({self}) {cause}"
        mend = None if cure else authors_cure(self.entry_point, error)
        if mend:
            return PluginError(f"{told}; {mend}")
        cure = cure or pip_install(self.distribution, options="--upgrade --force-reinstall")
        return PluginError(f"{told}; try: {cure}, or pip uninstall {self.distribution}")


Claims = dict[str, list[Claim]]


@frozen
class Catalogue:
    """Everything that is installed, by name: plugins, commands, models and options of chat.

    ``unreadable``: a fault for each distribution whose metadata cannot be read.
    """

    plugins: Mapping[str, list[Claim]]
    commands: Mapping[str, list[Claim]]
    models: Mapping[str, list[Claim]]
    chat: Mapping[str, list[Claim]]
    unreadable: list[Fault]

    def plugin(self, name: str) -> Claim:
        """The one claim of a plugin's name.

        :raises PluginError: no distribution claims it, or more than one does.
        """
        if name not in self.plugins:
            raise missing(name, self.plugins)
        return only("plugin", self.plugins[name])

    def owner(self, kind: str, claims: list[Claim]) -> Claim:
        """The plugin behind a command or a model.

        :param kind: ``command`` or ``model``, for the error.
        :raises PluginError: more than one plugin claims the name, or none of its distribution is
            the module that the claim points at.
        """
        claim = only(kind, claims)
        for others in self.plugins.values():
            for plugin in others:
                if (plugin.distribution, plugin.target) == (claim.distribution, claim.target):
                    return self.plugin(plugin.name)
        raise PluginError(
            f"{kind} {claim.name!r} ({claim}) belongs to no plugin of {claim.distribution}; "
            f"try: {pip_install(claim.distribution, options='--upgrade')}"
        )

    def doubled(self) -> Iterator[str]:
        """A line for each command and each model that more than one distribution claims."""
        for kind, known in (("command", self.commands), ("model", self.models)):
            for claims in known.values():
                try:
                    only(kind, claims)
                except PluginError as error:
                    yield str(error)


def installed_plugin(word: str) -> str:
    """The name of an installed plugin for that name or its last words: ``ngram``.

    :raises PluginError: there is none, or not one alone; says what may have been meant.
    """
    installed = scan().plugins
    names = full_names(word, installed)
    if not names:
        raise missing(word, installed)
    if len(names) > 1:
        raise PluginError(f"plugin {word!r} may be {' or '.join(names)}: give one of these names")
    return names[0]


def only(kind: str, claims: list[Claim]) -> Claim:
    """The one claim of a name.

    :param kind: what is claimed, for the error.
    :raises PluginError: there are several; names them and what to uninstall.
    """
    first, *others = claims
    if others:
        both = " and ".join(f"({claim})" for claim in claims)
        raise PluginError(
            f"{kind} {first.name!r} is claimed more than once, by {both}; "
            f"keep one, for example: pip uninstall {others[0].distribution}"
        )
    return first


def scan() -> Catalogue:
    """Read the entry points of every distribution on ``sys.path``; imports nothing of them."""
    groups: dict[str, Claims] = {group: {} for group in GROUPS}
    unreadable: list[Fault] = []
    seen: set[str] = set()
    for distribution in distributions():
        with recorded("unknown", "metadata", unreadable):
            for group, claim in _claims(distribution, seen):
                known = groups[group].setdefault(claim.name, [])
                if claim not in known:
                    known.append(claim)
    plugins, commands, models, chat = (groups[group] for group in GROUPS)
    return Catalogue(plugins, commands, models, chat, unreadable)


def _claims(distribution: Distribution, seen: set[str]) -> Iterator[tuple[str, Claim]]:
    """Our entry points of a distribution, unless it was found earlier on the path."""
    text = distribution.read_text("entry_points.txt") or ""
    if PROJECT not in text:  # most have nothing for us: do not parse them
        return
    headers = _headers(distribution)
    name = headers.get("Name", "a distribution without a name")
    same = re.sub(r"[-_.]+", "-", name).lower()
    if same in seen:
        return
    seen.add(same)
    version, summary = headers.get("Version", "?"), headers.get("Summary", "")
    for entry in distribution.entry_points:
        if entry.group in GROUPS:
            yield entry.group, Claim(entry.name, entry.value, name, version, summary, entry)


def _headers(distribution: Distribution) -> dict[str, str]:
    """The few we need; ``Distribution.metadata`` parses all, ten times as slowly."""
    text = distribution.read_text("METADATA") or distribution.read_text("PKG-INFO") or ""
    return dict(re.findall(r"^(Name|Version|Summary): *(.+)$", text.split("\n\n")[0], re.MULTILINE))
