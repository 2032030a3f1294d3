"""Which arm to use, and what the config file must say for it."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from attrs import frozen

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mlxfill import Config
    from mlxfill_bench.effect import Effect
    from mlxfill_bench.measuring import Measurement


@frozen
class Advice:
    """What to settle, and the effect of the arm that it stands for; None: no arm surely helps.

    ``enabled``: the plugins to switch on, by priority; ``draft``: the drafter, None for none;
    ``changes``: whether any of this is not so yet; ``unproven``: what would settle it where no arm
    surely helps, a line each.
    """

    effect: Effect | None
    enabled: tuple[str, ...]
    draft: str | None
    changes: bool
    unproven: tuple[str, ...] = ()

    @property
    def no_change(self) -> str:
        """What to say where nothing changes."""
        return "The config says so already." if self.effect else "No change: what is on stays on."

    def settings(self) -> dict[tuple[str, ...], Any]:
        """Keys of the config file and their values; None: the key is to be left out."""
        return {("draft",): self.draft, ("plugins", "enabled"): list(self.enabled)}

    def lines(self) -> str:
        """The same as lines of a config file."""
        import tomlkit

        document = tomlkit.document()
        if self.draft is not None:
            document["draft"] = self.draft
        document["plugins"] = {"enabled": list(self.enabled)}
        return tomlkit.dumps(document).strip()


def advise(measured: Measurement, config: Config) -> Advice:
    """Take the fastest of the arms that help and leave the text as it is.

    What was measured and is not in that arm goes off.  Where no arm helps, only what surely does
    harm goes off.  Plugins and drafters that were not measured stay as they are, and so do those
    that had nothing to offer for these prompts: nothing is known about them.
    """
    on, best = plugins_on(config), best_of(measured.effects)
    if best is None:
        harmful = {word for effect in measured.effects for word in _harmful(effect)}
        enabled = tuple(name for name in on if name not in harmful)
        draft = None if config.draft in map(measured.drafts.get, harmful) else config.draft
    else:
        chosen, draft = measured.plugins[best.arm], measured.drafts[best.arm]
        if draft is None and config.draft not in _drafts_tried(measured):
            draft = config.draft
        tried = {name for e in measured.effects if e.offered for name in measured.plugins[e.arm]}
        others = [name for name in on if name not in chosen and name not in tried]
        enabled = (*chosen, *others)
        if set(enabled) == set(on) and chosen == tuple(name for name in on if name in chosen):
            enabled = on
    changes = (enabled, draft) != (on, config.draft)
    return Advice(best, enabled, draft, changes, () if best else _unproven(measured))


def as_it_is(config: Config) -> Advice:
    """To leave everything so."""
    return Advice(None, plugins_on(config), config.draft, changes=False)


def _unproven(measured: Measurement) -> tuple[str, ...]:
    """What would settle it where no arm surely helps."""
    silent = [effect.arm for effect in measured.effects if not effect.offered]
    open_ = [effect for effect in measured.effects if effect.verdict == "undecided"]
    lines = []
    if silent:
        lines.append(
            f"{', '.join(silent)} had nothing to propose: longer prompts with text to quote or"
            " edit, tools, or recorded sessions (mlxfill bench replay) would show what they do"
        )
    if open_:
        known = [f"{e.arm} x{e.expected:.2f}" for e in open_ if e.expected is not None]
        said = f"; by forwards and cost curve alone: {', '.join(known)}" if known else ""
        lines.append(f"undecided: more rounds (--rounds) or more prompts would settle it{said}")
    return tuple(lines)


def best_of(effects: Sequence[Effect]) -> Effect | None:
    """The fastest that helps and is lossless; None when none does."""
    fit = [effect for effect in effects if effect.verdict == "helps" and effect.lossless]
    return max(fit, key=lambda effect: effect.speed.ratio, default=None)


def plugins_on(config: Config) -> tuple[str, ...]:
    """The plugins that are on by the config, by priority; without a list all that are installed."""
    if config.plugins.enabled is not None:
        return config.plugins.enabled
    return tuple(sorted({entry.name for entry in entry_points(group="mlxfill")}))


def _drafts_tried(measured: Measurement) -> set[str | None]:
    """Drafters that had something to offer in some arm."""
    return {measured.drafts[effect.arm] for effect in measured.effects if effect.offered}


def _harmful(effect: Effect) -> Iterator[str]:
    """The one word of an arm that does harm; what proposed nothing is not judged by its time."""
    failed = effect.verdict == "faulty" or not effect.lossless
    if "+" not in effect.arm and (failed or (effect.verdict == "harms" and effect.offered)):
        yield effect.arm
