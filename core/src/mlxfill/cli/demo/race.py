"""Runs an ask plainly and with plugins."""

from __future__ import annotations

from contextlib import ExitStack
from statistics import median
from typing import TYPE_CHECKING, Any, Self

import attrs
from attrs import frozen

from mlxfill.config import Config
from mlxfill.config.sections import Gate
from mlxfill.engine import Engine, load

if TYPE_CHECKING:
    from types import TracebackType

    from mlxfill.cli.demo.asks import DemoAsk
    from mlxfill.engine import Result

MODEL = "tiny"
ROUNDS = 3
MAX_TOKENS = 256


@frozen
class Outcome:
    """What became of one ask.

    ``plain``: without plugins.  ``counted``: with them, every offer used whole, so that its
    forwards are the same on every machine.  ``plain_ms`` and ``gated_ms``: decode times of plain
    runs and of runs as they are by default, a pair for each round.
    """

    ask: DemoAsk
    plain: Result
    counted: Result
    plain_ms: tuple[float, ...]
    gated_ms: tuple[float, ...]
    identical: bool

    @property
    def speedup(self) -> float:
        """How many times faster the default run is: the median of the rounds."""
        return median(p / g for p, g in zip(self.plain_ms, self.gated_ms, strict=True))


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
        ungated = attrs.evolve(own, gate=Gate(enabled=False))
        self._open = ExitStack()
        self.gated = self._open.enter_context(load(MODEL, config=own))
        self.plain = self._sibling(config=own, plugins=[])
        self.counted = self._sibling(config=ungated)

    def _sibling(self, **options: Any) -> Engine:  # noqa: ANN401
        """Another engine on the same model."""
        first = self.gated
        engine = Engine(first.model, first.tokenizer, path=first.target.path, **options)
        return self._open.enter_context(engine)

    def run(self, ask: DemoAsk) -> Outcome:
        """All runs of one ask; the timed ones take turns, after one of each that is not timed."""
        plain, counted = _answer(self.plain, ask), _answer(self.counted, ask)
        _answer(self.gated, ask)
        pairs = [self._timed_pair(ask, turned=bool(i % 2)) for i in range(ROUNDS)]
        runs = [counted, *(result for pair in pairs for result in pair)]
        return Outcome(
            ask,
            plain,
            counted,
            tuple(p.stats.decode_ms for p, _ in pairs),
            tuple(g.stats.decode_ms for _, g in pairs),
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


def _answer(engine: Engine, ask: DemoAsk) -> Result:
    """Greedy, without reasoning."""
    return engine.generate(
        ask.messages,
        tools=ask.tools,
        max_tokens=MAX_TOKENS,
        temperature=0.0,
        template_options={"enable_thinking": False},
    )
