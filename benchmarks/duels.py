"""The rows of the speed table: what is measured, and how fast is fast enough."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

from gauges import DISCOVERY, HELP, lookup, rewind, start_up

if TYPE_CHECKING:
    from collections.abc import Callable

    from gauges import Reading

PLAIN = "mlxfill"
LOOKUP = "mlxfill + spec-ngram"
MLX_LM = "mlx-lm"
DSPARK = "mlx-dspark lookup"


@dataclass(frozen=True)
class Reach:
    """The bound that a value has to meet."""

    sense: Literal["at least", "above", "at most"]
    bound: float
    unit: str = ""

    def met(self, value: float) -> bool:
        """Say whether ``value`` is good enough."""
        if self.sense == "at most":
            return value <= self.bound
        return value > self.bound if self.sense == "above" else value >= self.bound

    def __str__(self) -> str:
        return f"{self.sense} {self.bound:g} {self.unit}".rstrip()


@dataclass(frozen=True)
class Setting:
    """One prompt to one model.  All rows of a setting share its rounds.

    ``rounds`` and ``tokens`` scale what the command line asks for: a tiny model needs more
    rounds for a steady median, slow runs and free text, where any stretch is like another,
    get fewer tokens.
    """

    model: Literal["fp32", "bf16", "tiny"]
    prompt: Literal["free_story", "free_explain", "copy_text", "copy_code"]
    rounds: float = 1.0
    tokens: float = 1.0

    @property
    def name(self) -> str:
        """Name the setting in progress lines."""
        return f"{self.model} {self.prompt}"

    @property
    def wants_openblas(self) -> bool:
        """Say whether the model is measured with a fast BLAS; bf16 is the slow case on purpose."""
        return self.model != "bf16"


@dataclass(frozen=True)
class Duel:
    """Decode speed of one contestant against another."""

    key: str
    what: str
    setting: Setting
    ours: str
    theirs: str
    reach: Reach


@dataclass(frozen=True)
class Gauge:
    """A cost of its own, no contest."""

    key: str
    what: str
    measure: Callable[[], Reading]
    reach: Reach


STORY = Setting("fp32", "free_story", tokens=0.5)
EXPLAIN = Setting("fp32", "free_explain", tokens=0.5)
TEXT = Setting("fp32", "copy_text")
CODE = Setting("fp32", "copy_code")
TINY = Setting("tiny", "free_story", rounds=8)
SLOW_STORY = Setting("bf16", "free_story", tokens=0.25)
SLOW_EXPLAIN = Setting("bf16", "free_explain", tokens=0.25)

NO_LOSS = Reach("at least", 0.98)
LITTLE_LOSS = Reach("at least", 0.97)
FASTER = Reach("above", 1.0)
SMALL_PART = Reach("at most", 0.30)

DUELS = (
    Duel("plain-smollm2", "plain, SmolLM2-135M", STORY, PLAIN, MLX_LM, NO_LOSS),
    Duel("plain-tiny", "plain, tiny", TINY, PLAIN, MLX_LM, NO_LOSS),
    Duel("copy-text", "copy a text", TEXT, LOOKUP, MLX_LM, Reach("at least", 5.5)),
    Duel("copy-code", "copy code, one change", CODE, LOOKUP, MLX_LM, Reach("at least", 3.0)),
    Duel("copy-text-dspark", "copy a text", TEXT, LOOKUP, DSPARK, FASTER),
    Duel("copy-code-dspark", "copy code, one change", CODE, LOOKUP, DSPARK, FASTER),
    Duel("free-story", "free-form story", STORY, LOOKUP, MLX_LM, NO_LOSS),
    Duel("free-explain", "free-form explanation", EXPLAIN, LOOKUP, MLX_LM, NO_LOSS),
    Duel("slow-story", "story, bf16, slow BLAS", SLOW_STORY, LOOKUP, MLX_LM, LITTLE_LOSS),
    Duel("slow-explain", "explanation, bf16, slow BLAS", SLOW_EXPLAIN, LOOKUP, MLX_LM, LITTLE_LOSS),
)

GAUGES = (
    Gauge(
        "lookup-propose",
        "spec-ngram propose, 128k tokens",
        partial(lookup, "propose_new"),
        Reach("at most", 2, "us"),
    ),
    Gauge(
        "lookup-append",
        "spec-ngram append, 128k tokens",
        partial(lookup, "append"),
        Reach("at most", 1.5, "us"),
    ),
    Gauge(
        "lookup-build",
        "spec-ngram index of 100k tokens",
        partial(lookup, "build"),
        Reach("at most", 200, "ms"),
    ),
    Gauge("rewind-8", "rewind, hybrid, 4 of 8 kept", partial(rewind, 8), SMALL_PART),
    Gauge("rewind-16", "rewind, hybrid, 8 of 16 kept", partial(rewind, 16), SMALL_PART),
    Gauge("help", "mlxfill --help", partial(start_up, HELP), Reach("at most", 0.25, "s")),
    Gauge("discovery", DISCOVERY, partial(start_up, DISCOVERY), Reach("at most", 50, "ms")),
)
