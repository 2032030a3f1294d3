"""Runs an ask plainly and with plugins."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Self

import attrs
from attrs import frozen

from mlxfill import Config, Engine, load

if TYPE_CHECKING:
    from types import TracebackType

    from mlxfill import Result
    from mlxfill_model_tiny.demo.asks import DemoAsk

MODEL = "tiny"
ROUNDS, MOST_ROUNDS = 4, 12
"""Fewest and most timed pairs of an ask."""
SPENT_MS = 1000.0
"""Of plain runs of an ask, if they are that short."""
MAX_TOKENS = 256


@frozen
class Outcome:
    """What became of one ask.

    ``plain``: without plugins.  ``counted``: with them, every offer used whole, so that its
    forwards depend on the plugins alone.  ``plain_ms`` and ``gated_ms``: the shortest decode time
    of the plain runs, and of those with the gate as it is by default.
    """

    ask: DemoAsk
    plain: Result
    counted: Result
    plain_ms: float
    gated_ms: float
    identical: bool

    @property
    def speedup(self) -> float:
        """How many times faster the default run is."""
        return self.plain_ms / self.gated_ms


class Race:
    """Three engines on one model: plain, with every offer used, and as they are by default.

    A context manager.  Of the user's config, the plugins and their settings count.
    """

    def __init__(self, config: Config) -> None:
        """Load the model and warm up.

        :raises ModelError: the tiny model is not installed.
        :raises PluginError, ConfigError: the config is wrong.
        """
        own = Config(plugins=config.plugins, trust=config.trust)
        ungated = attrs.evolve(own, gate=attrs.evolve(own.gate, enabled=False))
        self._open = ExitStack()
        self.gated = self._open.enter_context(load(MODEL, config=own))
        self.gated.prepare()
        self.plain = self._sibling(config=own, plugins=[])
        self.counted = self._sibling(config=ungated)

    def _sibling(self, **options: Any) -> Engine:  # noqa: ANN401
        """Another engine on the same model."""
        first = self.gated
        engine = Engine(first.model, first.tokenizer, path=first.target.path, **options)
        return self._open.enter_context(engine)

    def run(self, ask: DemoAsk) -> Outcome:
        """All runs of one ask; the timed ones take turns, after one of each that is not timed.

        Other programs make a run longer, never shorter: the shortest says most about the machine.
        """
        plain, counted = _answer(self.plain, ask), _answer(self.counted, ask)
        _answer(self.gated, ask)
        pairs = [self._timed_pair(ask, turned=bool(i % 2)) for i in range(_rounds(plain))]
        runs = [counted, *(result for pair in pairs for result in pair)]
        return Outcome(
            ask,
            plain,
            counted,
            min(p.stats.decode_ms for p, _ in pairs),
            min(g.stats.decode_ms for _, g in pairs),
            identical=all(result.tokens == plain.tokens for result in runs),
        )

    def _timed_pair(self, ask: DemoAsk, *, turned: bool) -> tuple[Result, Result]:
        """A plain and a default run; ``turned``: the default one goes first."""
        if turned:
            gated = _answer(self.gated, ask)
            return _answer(self.plain, ask), gated
        return _answer(self.plain, ask), _answer(self.gated, ask)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._open.close()


def _rounds(plain: Result) -> int:
    """Timed pairs for a reply: more of those that are over soon."""
    fitting = SPENT_MS / max(plain.stats.decode_ms, 1.0)
    return min(max(ROUNDS, round(fitting)), MOST_ROUNDS)


def _answer(engine: Engine, ask: DemoAsk) -> Result:
    """Greedy, without reasoning."""
    return engine.generate(
        ask.messages,
        tools=ask.tools,
        max_tokens=MAX_TOKENS,
        temperature=0.0,
        template_options={"enable_thinking": False},
    )
