"""Finding and loading the drafter that a user asks for, or that lies in the model's own folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlxfill.drafters.fit import misfit
from mlxfill.drafters.inside import Located
from mlxfill.engine.find_model import find
from mlxfill.errors import DrafterError, MlxfillError, PluginError
from mlxfill.installing import brought_by
from mlxfill.loading.baked import baked_head
from mlxfill.loading.formats import folder_format, head_format
from mlxfill.nearest import did_you_mean, plugin_meant
from mlxfill.plugins.advice import project_plugins
from mlxfill.plugins.faults import one_line, recorded
from mlxfill.policy.drafter import Drafter

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from mlxfill.contracts import DraftKind
    from mlxfill.model.target import Target
    from mlxfill.plugins import PluginManager
    from mlxfill.policy.cost import CostCurve

    Kinds = Sequence[tuple[str, DraftKind]]

AUTO = "auto"
"""In the place of a drafter: the best that lies on this machine."""
NUMBERS = {"weights_bytes": (int, 0), "default_depth": (int, 1)}
"""What is reckoned with of a provider: types and least values."""


def mount(
    plugins: PluginManager,
    target: Target,
    artifact: str | os.PathLike[str] | Located | None,
    name: str | None,
    no_rewind: Callable[[], str],
) -> Drafter:
    """Load the drafter in ``artifact``, by the kind ``name`` or by what is found there.

    :param no_rewind: why the target cannot take tokens back; "" when it can.
    :raises DrafterError, PluginError, ModelNotFoundError: one line, with the remedy.
    """
    path: Path | None
    if isinstance(artifact, Located):
        plugin, kind, path = artifact.plugin, artifact.kind, artifact.folder
    else:
        path = None if artifact is None else find(plugins, artifact)
        plugin, kind = _detected(plugins, path) if name is None else _named(plugins, path, name)
    reason = no_rewind()
    if reason:
        raise DrafterError(f"this model cannot use a drafter: {reason}")
    failed = f"plugin {plugin!r} failed to load {path or kind.name}"
    try:
        provider = kind.load(path, target, plugins.settings(plugin))
        wrong = _unfit(provider)
    except DrafterError as error:
        hint = _kind_meant(plugins, path, kind) if name is not None else ""
        said = _of_both(error, path, target.path)
        raise DrafterError(f"{said.rstrip('.')}{hint}" if hint else said) from error
    except (MlxfillError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise DrafterError(f"{failed}: {one_line(error)}") from error
    if wrong:
        raise DrafterError(f"{failed}: its provider has {wrong}")
    return Drafter(plugin, kind, provider)


def _of_both(error: DrafterError, drafter: Path | None, target: Path | None) -> str:
    """What a plugin refuses, or the same with both sides where it names only its own."""
    said = str(error)
    if (
        drafter is None
        or target is None
        or str(target) in said
        or target in (drafter, *drafter.parents)
    ):
        return said
    return misfit(drafter, target, folder_format(drafter).key) or said


def mount_best(
    plugins: PluginManager,
    target: Target,
    name: str | None,
    no_rewind: Callable[[], str],
    curve: Callable[[], CostCurve],
) -> tuple[Drafter | None, str]:
    """Load the drafter that promises most of those that lie on this machine for the target.

    :param name: a kind or plugin, where only its drafters are wanted.
    :param curve: gives the costs by which they are compared.
    :returns: None where none can be had; and what is to be said of it, in a line.
    """
    from mlxfill.drafters.find import find_drafters

    if target.path is None or no_rewind():
        return None, f"no drafter is looked for: {no_rewind() or 'the model has no folder'}"
    found = find_drafters(plugins, str(target.path), target.path, curve())
    usable = [each for each in found if each.usable and name in (None, each.method, each.plugin)]
    kinds = {(plugin, kind.name): kind for plugin, kind in plugins.draft_kinds()}
    failed = ""
    for each in usable:
        kind, folder = kinds[each.plugin, each.method], each.folder or target.path
        try:
            drafter = mount(plugins, target, Located(each.plugin, kind, folder), None, no_rewind)
        except DrafterError as error:
            failed += f"; {error}"
        else:
            what = f"{each.name or each.folder} ({each.method})"
            others = f", of {len(usable)} that promised most" if len(usable) > 1 else ""
            return drafter, f"drafts with {what}{others}{failed}"
    known = f"mlxfill drafters {target.path} lists what is published"
    return None, f"no drafter for this model lies on this machine{failed}; {known}"


def _kind_meant(plugins: PluginManager, path: Path | None, named: DraftKind) -> str:
    """A hint at the kind of what lies in a folder, where a wrong one was named; or nothing."""
    for plugin, kind in sorted(plugins.draft_kinds(), key=lambda each: each[1].fallback):
        if path is not None and kind.needs_artifact:
            with recorded(plugin, "draft", []):  # nobody asked for it
                if kind.detect(path):
                    right = kind.name == named.name
                    hint = f"; it is of the kind {kind.name!r}: leave out --draft-kind"
                    return "" if right else hint
    return ""


def _unfit(provider: object) -> str:
    """What is wrong with a provider's attributes, "" for nothing."""
    for name, (kind, least) in NUMBERS.items():
        value = getattr(provider, name, None)
        if type(value) is not kind or value < least:
            return f"{name} {value!r}, not {kind.__name__} of at least {least}"
    missing = [name for name in ("open", "close") if not callable(getattr(provider, name, None))]
    return f"no {missing[0]}()" if missing else ""


def passed_over(plugins: PluginManager, folder: Path) -> str:
    """What to say of a head that lies in the model's folder and is not used; "" for none."""
    head = baked_head(folder)
    if head is None:
        return ""
    if head.broken:
        return f"the head of {folder} cannot be used: {head.broken}"
    loads = brought_by(f"draft-{head_format(head)}")
    missing = plugins.remedy(*loads)
    if head.what:
        nobody = "no installed plugin loads it from there"
        return f"{folder} holds {head.what}, which is not used: {missing or nobody}"
    lies = f"the config of {folder} promises an MTP head ({head.promise}), its weights have none"
    first = f"{missing}, then " if missing else ""
    ours = f"{first}mlxfill mtp split ORIGINAL_RELEASE HEAD, and --draft HEAD"
    return f"{lies}: {ours if loads else 'most conversions leave it out'}"


def _detects(plugin: str, kind: DraftKind, folder: Path) -> bool:
    try:
        return bool(kind.detect(folder))
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        cause = f"plugin {plugin!r} failed to look at {folder}: {one_line(error)}"
        raise PluginError(cause) from error


def _named(plugins: PluginManager, path: Path | None, name: str) -> tuple[str, DraftKind]:
    kinds = plugins.draft_kinds()
    found = [each for each in kinds if each[0] == name] or [k for k in kinds if k[1].name == name]
    owners = sorted({plugin for plugin, _ in found})
    if len(owners) > 1:
        raise PluginError(
            f"draft kind {name!r} is claimed by the plugins {' and '.join(owners)}; "
            f"name one of them instead: --draft-kind {owners[0]}"
        )
    if found:
        plugin, kind = found[0]
        if kind.needs_artifact and path is None:
            raise DrafterError(f"draft kind {name!r} needs a draft model: --draft PATH")
        return plugin, kind
    theirs = name if plugins.is_off(name) else plugin_meant(name, project_plugins(drafting=True))
    remedy = plugins.remedy(theirs) if theirs else ""
    slip = "" if remedy else did_you_mean(name, [kind.name for _, kind in kinds])
    raise PluginError(
        f"no plugin that is on has the draft kind {name!r} (there are: {_known(kinds)})"
        f"{f'; {remedy}' if remedy else slip}"
    )


def _detected(plugins: PluginManager, path: Path | None) -> tuple[str, DraftKind]:
    kinds = plugins.draft_kinds()
    for plugin, kind in sorted(kinds, key=lambda each: each[1].fallback):
        if path is not None and kind.needs_artifact and _detects(plugin, kind, path):
            return plugin, kind
    raise _unclaimed(plugins, path, _known(kinds))


def _unclaimed(plugins: PluginManager, path: Path | None, known: str) -> MlxfillError:
    """What to say of a folder that no kind of drafter claims: what it is, and who would load it."""
    found = None if path is None else folder_format(path)
    remedy = plugins.remedy(*brought_by(f"draft-{found.key}")) if found else ""
    if found is not None and not remedy:
        return DrafterError(
            f"{path} is {found.name}; no installed plugin loads it (kinds: {known})"
        )
    lies = f"; it is {found.name}: {remedy}" if found else ""
    return PluginError(f"no plugin that is on can draft with {path} (kinds: {known}){lies}")


def _known(kinds: Kinds) -> str:
    return ", ".join(kind.name for _, kind in kinds) or "none"
