"""Output with a plugin is output without it: in engines around tiny models of every cache kind."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import mlx.core as mx
from attrs import frozen

from mlxfill import Chooser, Sampling, hookimpl
from mlxfill_testing.conformance.breach import Breach, blamed
from mlxfill_testing.conformance.sessions.playing import shown
from mlxfill_testing.guest import Guest, engine_with
from mlxfill_testing.kinds import CACHE_KINDS, CacheKind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mlxfill import ProposalSource, Request, Result
    from mlxfill_testing.conformance.report import Conformance
    from mlxfill_testing.conformance.trial import Trial

COUNT = 14
"""Tokens of a reply."""
MARGIN = 1e-4
"""Where windows round, how far apart two candidates are that may change places."""
EXAMPLES = 24
DOING = "requests to tiny models"
TRIES = 4
OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"temperature": 0.8, "seed": 3},
    {"temperature": 1.0, "seed": 5, "top_k": 8, "repetition_penalty": 1.2},
    {"stop": ["th", "e"]},
    {"eos_token_ids": list(range(0, 64, 7))},
)
"""Greedy, sampled, filtered and penalised, with stop strings, with many ends."""
COMPANY = ("", "first", "last")
"""Whether another source, right most of the time, is seated too, and where."""


@frozen
class Generation:
    """A request to a tiny model."""

    kind: str
    prompt: tuple[int, ...]
    options: int = 0
    company: str = ""

    @property
    def words(self) -> str:
        """In a sentence."""
        with_options = f" and {OPTIONS[self.options]}" if OPTIONS[self.options] else ""
        return f"with a {self.kind} cache, the prompt {shown(self.prompt)}{with_options}"


class Seated:
    """A plugin of sources, whose factory may answer one, several or None."""

    name = "under-test"

    def __init__(self, factory: Callable[[Request], Any]) -> None:
        # Wrapped: a function that is marked as a hook would be taken for one of this plugin's.
        self._factory = (factory,)
        self.drafter = None

    @hookimpl
    def mlxfill_proposal_sources(self, request: Request) -> Sequence[ProposalSource] | None:
        """The sources under test."""
        __tracebackhide__ = True
        answer: Any = self._factory[0](request)
        return [answer] if hasattr(answer, "propose") else answer


def generations() -> Any:  # noqa: ANN401 - a hypothesis strategy
    """Requests to every kind of model."""
    from hypothesis import strategies as st

    ids = st.integers(0, 63)
    prompts = st.lists(ids, min_size=1, max_size=6) | st.builds(
        lambda part, times: part * times, st.lists(ids, min_size=1, max_size=5), st.integers(2, 5)
    )
    return st.builds(
        Generation,
        st.sampled_from(list(CACHE_KINDS)),
        prompts.map(tuple),
        st.integers(0, len(OPTIONS) - 1),
        st.sampled_from(COMPANY),
    )


def check_lossless(
    trial: Trial, factory: Callable[[Request], Any], report: Conformance, *, trusted: bool = False
) -> None:
    """Sources of ``factory`` change no output, ``trusted`` to assert or not.

    :raises ConformanceError: they do.
    """
    __tracebackhide__ = True

    def plugin(_: CacheKind) -> Seated:
        return Seated(factory)

    def examine(generation: Generation) -> None:
        _examine(generation, plugin, report, trusted=trusted)

    doing = "requests in which its asserts are trusted" if trusted else DOING
    trial.shortest(doing, generations(), examine, EXAMPLES)


def compare(
    trial: Trial,
    plugin: Callable[[CacheKind], Any],
    report: Conformance,
    examples: int = EXAMPLES,
    kinds: Any = None,  # noqa: ANN401 - a hypothesis strategy of Generation
) -> None:
    """Output with the plugin beside plain output, on ``examples`` requests."""
    __tracebackhide__ = True

    def examine(generation: Generation) -> None:
        _examine(generation, plugin, report)

    trial.shortest(DOING, generations() if kinds is None else kinds, examine, examples)


def _examine(
    generation: Generation,
    plugin: Callable[[CacheKind], Any],
    report: Conformance,
    *,
    trusted: bool = False,
) -> None:
    kind, plain = CACHE_KINDS[generation.kind], plain_result(generation)
    expected = plain.result

    def told(said: str) -> Breach:
        return Breach(f"{generation.words} the plugin {said}", len(generation.prompt))

    for _ in range(TRIES):
        with blamed(told, "a request"):
            result = _with(kind, plugin(kind), generation, expected, trusted=trusted)
        ours = [fault for fault in result.faults if fault.plugin == Seated.name]
        if not any(fault.message.startswith("TimeoutError") for fault in ours):
            break  # else it is slow, or the machine is busy: the next try will tell
    if ours:
        raise told(f"was quarantined in {ours[0].where}: {ours[0].message}")
    report.stories += 1
    report.judged += result.stats.spec["judged"] if generation.company == "" else 0
    report.asserted += result.stats.fill["injected"]
    if result.tokens != expected.tokens and not _undecided(generation, plain, result):
        why = ", as it asserts guesses: offer them as Policy.VERIFY" if trusted else ""
        raise told(
            f"changed the output{why}: {shown(result.tokens)} in place of {shown(expected.tokens)}"
        )
    if result.tokens == expected.tokens and result.finish_reason != expected.finish_reason:
        raise told(f"changed the ending: {result.finish_reason}, not {expected.finish_reason}")


def _with(
    kind: CacheKind,
    plugin: Any,  # noqa: ANN401
    generation: Generation,
    expected: Result,
    *,
    trusted: bool = False,
) -> Result:
    company = Guest.offering([*generation.prompt, *expected.tokens], 0.8, chance=0.4)
    seats = {"first": [company, plugin], "last": [plugin, company]}
    guests = seats.get(generation.company, [plugin])
    trust = [Seated.name] if trusted else []
    with engine_with(kind.model(), *guests, trusted=trust) as engine:
        return engine.generate(list(generation.prompt), **_options(generation))


@frozen
class Plain:
    """What plain decoding writes, and the log-probabilities ``[V]`` of each choice."""

    result: Result
    rows: list[mx.array]


@cache
def plain_result(generation: Generation) -> Plain:
    """The judge of a request."""
    kind = CACHE_KINDS[generation.kind]
    with engine_with(kind.model()) as engine:
        run = engine.stream(list(generation.prompt), logprobs=True, **_options(generation))
        rows = [piece.logprobs for piece in run if piece.logprobs is not None]
        return Plain(run.result(), rows)


def _options(generation: Generation) -> dict[str, Any]:
    settings = {"max_tokens": COUNT, "eos_token_ids": (), **OPTIONS[generation.options]}
    return {**settings, **CACHE_KINDS[generation.kind].options}


def _undecided(generation: Generation, plain: Plain, other: Result) -> bool:
    """Whether rounding may have made the first difference: two candidates were as good."""
    if CACHE_KINDS[generation.kind].exact:
        return False
    pairs = enumerate(zip(plain.result.tokens, other.tokens, strict=False))
    at = next((i for i, (a, b) in pairs if a != b), None)
    if at is None:
        return False
    options = OPTIONS[generation.options]
    chooser = Chooser(Sampling(**{k: v for k, v in options.items() if hasattr(Sampling, k)}))
    scores = chooser.scores(plain.rows[at][None], [len(generation.prompt) + at])[0]
    best: Any = mx.sort(scores)[-2:].tolist()
    return bool(best[1] - best[0] < MARGIN)
