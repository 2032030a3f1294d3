"""The real engine, sources and policy over a target that says what was recorded."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from attrs import evolve, frozen

from mlxfill import Engine, InputError, Policy
from mlxfill_bench.arms import DRAFT, PLAIN, SOURCES_HOOK, Parts
from mlxfill_bench.forecast.replies import KINDS
from mlxfill_bench.forecast.target import ScriptedModel, chosen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from mlxfill import Config, CostCurve, Event, Result
    from mlxfill_bench.forecast.replies import Reply

ALONE = "sampled"
"""The origin of tokens that nobody foresaw."""


@frozen
class Foreseen:
    """What one set of plugins brought in one reply.

    ``origins``: of each token; ``steps``: what its forwards cost by the curve, in forwards of one
    token, by the kind of the token that each brought first; ``forwards``: their number, likewise.
    ``injected``: which tokens were asserted.
    ``strayed``: tokens of the recording that are missing because an asserted token was another
    than the recorded one; they count as one forward each.
    """

    reply: Reply
    origins: tuple[str, ...]
    forwards: Mapping[str, int]
    steps: Mapping[str, float]
    injected: frozenset[int]
    strayed: int


@contextmanager
def open_forecast(
    tokenizer: Any,  # noqa: ANN401 - mlx-lm's wrapper
    names: Sequence[str] | None,
    config: Config,
    curve: CostCurve,
) -> Iterator[tuple[ScriptedModel, dict[str, Engine]]]:
    """A scripted target, and engines on it by the names of their arms, ``plain`` first.

    :param names: as from ``named_arms``; None: each plugin that is on and has sources, and all.
    :raises InputError: an arm drafts, which needs a model; no plugin has a source.
    """
    for name in names or ():
        if Parts.of(name).draft is not None:
            raise InputError(f"--arms {name}: a forecast has no model to draft with: leave {DRAFT}")
    ends = sorted(tokenizer.eos_token_ids)
    if not ends:
        raise InputError("--tokenizer: this tokenizer names no token that ends a reply")
    model = ScriptedModel(max(len(tokenizer), *(end + 1 for end in ends)), ends[0])
    bare = evolve(config, draft=None, draft_kind=None, num_draft_tokens=0)
    with ExitStack() as opened:

        def engine(plugins: Sequence[str] | None) -> Engine:
            made = Engine(model, tokenizer, plugins=plugins, config=bare, curve=curve)
            return opened.enter_context(made)

        engines = {PLAIN: engine([])}
        for name in names or _arms(engine(None)):
            if name != PLAIN:
                engines[name] = engine(Parts.of(name).plugins)
        yield model, engines


def _arms(engine: Engine) -> list[str]:
    on = [name for name in engine.plugins.names if SOURCES_HOOK in engine.plugins.hooks(name)]
    if not on:
        raise InputError("no plugin with a source is on: switch one on, or name --arms")
    return [*on, "+".join(on)] if len(on) > 1 else on


def foresee(
    model: ScriptedModel,
    engines: Mapping[str, Engine],
    replies: Sequence[Reply],
    on_reply: Callable[[], None] = lambda: None,
) -> dict[str, list[Foreseen]]:
    """Let each arm but plain decoding write each reply."""
    arms = {name: engine for name, engine in engines.items() if name != PLAIN}
    found: dict[str, list[Foreseen]] = {name: [] for name in arms}
    for reply in replies:
        model.say([*reply.prompt.ids, *reply.ids])
        for name, engine in arms.items():
            found[name].append(_foreseen(reply, engine))
        on_reply()
    return found


def _foreseen(reply: Reply, engine: Engine) -> Foreseen:
    events: list[Event] = []
    with engine.tracing.into(events.append):
        result = engine.generate(
            reply.prompt,
            tools=reply.tools,
            template_options=reply.template_options,
            max_tokens=len(reply.ids),
            sampler=chosen,
        )
    right = _agreed(result.tokens, reply.ids)
    forwards, steps = _costs(reply, result, events, engine)
    strayed = len(reply.ids) - right
    for kind in reply.kinds[right:]:
        forwards[kind] += 1
        steps[kind] += 1.0
    return Foreseen(
        reply,
        (*result.origins[:right], *(ALONE for _ in range(strayed))),
        forwards,
        steps,
        frozenset(at for at in _asserted(events) if at < right),
        strayed,
    )


def _asserted(events: Sequence[Event]) -> Iterator[int]:
    """Places in the reply of ids that a source asserted."""
    for event in events:
        if event.kind == "proposal" and event.data["policy"] == str(Policy.ASSERT):
            start = event.data["generated"]
            yield from range(start, start + event.data["accepted"])


def _agreed(tokens: Sequence[int], recorded: Sequence[int]) -> int:
    pairs = enumerate(zip(tokens, recorded, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(tokens), len(recorded)))


def _costs(
    reply: Reply, result: Result, events: Sequence[Event], engine: Engine
) -> tuple[dict[str, int], dict[str, float]]:
    """Forwards and their costs by the kind of the first token that each brought."""
    forwards, steps = dict.fromkeys(KINDS, 0), dict.fromkeys(KINDS, 0.0)
    begin, last = len(reply.prompt.ids), len(reply.ids) - 1
    windows = Counter[int]()
    for event in events:
        if event.kind == "round":
            window = event.data
            at = max(0, min(window["held"] + 1 - begin, last))
            kind = reply.kinds[at]
            forwards[kind] += 1
            steps[kind] += engine.forward_cost(window["known"] + window["drafted"])
            windows[at] += 1
    # All others brought one token each, or what ended the reply.
    plain = max(result.stats.target_forwards - sum(windows.values()), 0)
    at = 0
    for count in result.stats.rounds:
        if plain and not windows[min(at, last)]:
            kind = reply.kinds[min(at, last)]
            forwards[kind] += 1
            steps[kind] += 1.0
            plain -= 1
        at += count
    if plain:
        forwards[reply.kinds[last]] += plain
        steps[reply.kinds[last]] += plain
    return forwards, steps
