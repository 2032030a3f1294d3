"""The check of another way to generate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import define, frozen

from mlxfill import PluginError
from mlxfill_testing.conformance.breach import Breach, said_of
from mlxfill_testing.conformance.report import Conformance
from mlxfill_testing.conformance.trial import Trial
from mlxfill_testing.guest import Guest, engine_with
from mlxfill_testing.models import VOCAB, tiny_model

if TYPE_CHECKING:
    from mlxfill import Engine, GenerationMethod, Result

LONGEST = 24
"""Tokens of a reply that is compared."""


@frozen
class Ask:
    """A request: a prompt, a seed, and the tokens after which another one leaves it."""

    prompt: tuple[int, ...]
    seed: int
    cut: int


def check_generation_method(
    method: GenerationMethod,
    *,
    model: Any = None,  # noqa: ANN401 - an mlx-lm model
    tokenizer: Any = None,  # noqa: ANN401
    examples: int = 20,
    quick: bool = False,
) -> Conformance:
    """Run everything that a generation method must stand, in an engine of its own.

    It settles ids of the vocabulary and raises nothing; a seed gives the same tokens each time,
    also after other requests and after one that was left half-way; a reply of fewer tokens is the
    beginning of a longer one, and so is what a reader takes who leaves.

    :param method: what the plugin's hook ``mlxfill_generation_method`` answers.
    :param model: the mlx-lm model that it was made for; by default one of the kit's.
    :param tokenizer: of the model; by default the kit's.
    :param examples: requests to try.
    :param quick: try a sixth of it, for a look after each change.
    :returns: how many forwards settled something, and how many tokens.
    :raises ConformanceError: one line that says what was wrong and for which request.
    """
    __tracebackhide__ = True
    name = str(getattr(method, "name", ""))
    with said_of(name or "method"):
        if not name or not callable(getattr(method, "generate", None)):
            raise Breach("a method needs a name, a text that is not empty, and generate(request)")
    report, trial = Conformance(name), Trial(name, quick)
    guest = Guest(method=method)
    with engine_with(model or tiny_model("llama"), guest, tokenizer=tokenizer) as engine:
        trial.shortest("requests", asks(), _Asking(engine, report).play, examples)
    if not report.accepted:
        report.warn("nothing was tested: it settled no token in any request")
    return report


def asks() -> Any:  # noqa: ANN401 - a hypothesis strategy
    """Prompts of up to twelve ids."""
    from hypothesis import strategies as st

    prompt = st.lists(st.integers(1, VOCAB - 2), min_size=1, max_size=12).map(tuple)
    return st.builds(Ask, prompt, st.integers(0, 3), st.integers(1, LONGEST - 1))


@define
class _Asking:
    engine: Engine
    report: Conformance

    def play(self, ask: Ask) -> None:
        """Generate, leave half-way, generate again and shorter.  Raises ``Breach``."""
        first = self._reply(ask, LONGEST)
        self.report.stories += 1
        self.report.offers += sum(1 for settled in first.stats.rounds if settled)
        self.report.accepted += len(first.tokens)
        begun = self._left(ask)
        if begun != first.tokens[: len(begun)]:
            raise self._breach(ask, f"wrote {first.tokens}, then for a reader who left {begun}")
        again = self._reply(ask, LONGEST)
        if again.tokens != first.tokens:
            said = f"wrote {first.tokens}, then {again.tokens} to the same request: it must depend"
            raise self._breach(ask, f"{said} on the request and its seed alone")
        short = self._reply(ask, ask.cut)
        if short.tokens != first.tokens[: ask.cut]:
            said = f"wrote {short.tokens} under max_tokens {ask.cut} and {first.tokens} under"
            raise self._breach(ask, f"{said} {LONGEST}: settle what is settled without a limit")

    def _reply(self, ask: Ask, most: int) -> Result:
        options: dict[str, Any] = {"max_tokens": most, "seed": ask.seed}
        try:
            return self.engine.generate(list(ask.prompt), **options)
        except PluginError as error:
            breach = self._breach(ask, str(error))
            raise breach from error.__cause__

    def _left(self, ask: Ask) -> list[int]:
        """The tokens that a reader takes who leaves after ``cut`` of them."""
        found: list[int] = []
        run = self.engine.stream(list(ask.prompt), max_tokens=LONGEST, seed=ask.seed)
        for piece in run:
            found += [] if piece.token is None else [piece.token]
            if len(found) >= ask.cut:
                break
        run.close()
        return found

    def _breach(self, ask: Ask, said: str) -> Breach:
        request = f"for prompt {list(ask.prompt)} with seed {ask.seed}"
        return Breach(f"{request}: {said}", len(ask.prompt) + ask.cut)
