"""One measurement of the user's prompts: every arm in turn, then each once more, watched."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import attrs
from attrs import evolve, field, frozen

from mlxfill_bench.arms import PLAIN, named_arms, needed, open_arms
from mlxfill_bench.effect import SLACK, Effect, effects
from mlxfill_bench.figures import Figures
from mlxfill_bench.observed import Observed, observe
from mlxfill_bench.options import progress
from mlxfill_bench.playback import GREEDY, ask
from mlxfill_bench.prompts import SAMPLES, read_prompts, unfit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rich.console import Console

    from mlxfill import Config, Engine
    from mlxfill_bench.options import Measuring
    from mlxfill_bench.playback import Answered
    from mlxfill_bench.sessions import Asked


@frozen(kw_only=True)
class Plan:
    """What is measured, and how.

    ``samples``: the prompts are those that come along, made for no model in particular; what this
    one's template has no place for is left out.  ``limit``: so many of the others are asked.
    """

    model: str
    prompts: Sequence[Asked]
    arms: Sequence[str] | None
    rounds: int = 5
    max_tokens: int = 128
    sampling: Mapping[str, Any] = field(factory=lambda: GREEDY)
    cold: bool = False
    slack: float = SLACK
    seed: int = 0
    samples: bool = False
    limit: int | None = None

    @property
    def turns(self) -> int:
        """How many answers one arm gives in a round."""
        return sum(len(prompt.turns()) for prompt in self.prompts[: self.limit])

    def fitting(self, plain: Engine) -> tuple[Plan, Mapping[str, str]]:
        """The plan with the prompts that are asked, and why samples are left out, by their name.

        :raises InputError, TemplateError: the model takes none of the samples.
        """
        left_out = unfit(self.prompts, plain) if self.samples else {}
        prompts = [prompt for prompt in self.prompts if prompt.id not in left_out]
        return evolve(self, prompts=prompts[: self.limit]), left_out

    def asking(self, on_turn: Callable[[], None]) -> dict[str, Any]:
        """Keywords of ``ask``, but the rounds, and of ``observe``."""
        return {
            "max_tokens": self.max_tokens,
            "sampling": self.sampling,
            "cold": self.cold,
            "on_turn": on_turn,
        }


@frozen
class Measurement:
    """What came out.

    ``plugins``: for each arm those that must be on for it; ``drafts``: the drafter that the config
    must name for it, None for none.  ``left_out``: samples that were not asked, and why.
    """

    facts: Mapping[str, Any]
    plain: Figures
    effects: Sequence[Effect]
    observed: Sequence[Observed]
    plugins: Mapping[str, tuple[str, ...]]
    drafts: Mapping[str, str | None]
    left_out: Mapping[str, str] = field(factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready, without the texts."""
        return {
            **self.facts,
            "left_out": dict(self.left_out),
            "plain": attrs.asdict(self.plain),
            "arms": [attrs.asdict(effect) for effect in self.effects],
        }


def measure(plan: Plan, config: Config, on_turn: Callable[[], None] = lambda: None) -> Measurement:
    """Measure.

    :raises InputError, TemplateError, ModelError, PluginError, DrafterError: one line each.
    """
    load = [os.getloadavg()[0]]
    with open_arms(plan.model, plan.arms, config) as engines:
        plan, left_out = plan.fitting(engines[PLAIN])
        answered = ask(plan.prompts, engines, rounds=plan.rounds, **plan.asking(on_turn))
        load.append(os.getloadavg()[0])
        return evolve(watched(plan, engines, answered, load, on_turn), left_out=left_out)


def watched(
    plan: Plan,
    engines: Mapping[str, Engine],
    answered: Sequence[Answered],
    load: Sequence[float],
    on_turn: Callable[[], None] = lambda: None,
) -> Measurement:
    """The measurement from timed answers; each arm answers once more, watched.

    :param load: of the machine, before and after.
    """
    observed = observe(plan.prompts, engines, **plan.asking(on_turn))
    plain = next(iter(engines))
    return Measurement(
        {**_facts(plan), "load": [round(each, 2) for each in load]},
        Figures.of(answered, plain),
        effects(answered, observed, slack=plan.slack, seed=plan.seed),
        observed,
        {name: needed(engine, name) for name, engine in engines.items()},
        {name: engine.config.draft for name, engine in engines.items()},
    )


def _facts(plan: Plan) -> dict[str, Any]:
    import mlx.core as mx

    return {
        "model": plan.model,
        "prompts": plan.turns,
        "rounds": plan.rounds,
        "max_tokens": plan.max_tokens,
        "temperature": plan.sampling["temperature"],
        "cold": plan.cold,
        "slack": plan.slack,
        "seed": plan.seed,
        "device": f"{platform.machine()} {mx.default_device().type.name}",
        "system": platform.system(),
        "cores": os.cpu_count(),
        "versions": {name: version(name) for name in ("mlxfill", "mlx", "mlx-lm")},
    }


def run(config: Config, errors: Console, options: Measuring) -> Measurement:
    """Measure what the options of a command say, behind a bar on ``errors``."""
    drawn = {"temperature": options.temperature, "seed": options.seed}
    plan = Plan(
        model=options.model or config.model or "tiny",
        prompts=read_prompts(options.prompts or SAMPLES, raw=options.raw),
        samples=options.prompts is None,
        limit=options.limit,
        arms=None if options.arms is None else named_arms(options.arms),
        rounds=options.rounds,
        max_tokens=options.max_tokens,
        sampling=drawn if options.temperature else GREEDY,
        cold=options.cold,
        slack=options.slack,
        seed=options.seed,
    )
    with progress(errors, "measuring", (plan.rounds + 1) * plan.turns) as step:
        return measure(plan, config, step)
