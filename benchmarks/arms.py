"""The contestants: each continues a prompt greedily and says how long decoding took.

Prefill is left out.  mlx-lm and mlxfill tell when all but the last prompt token are processed:
between the two the clock starts there.  It cannot start at the first token, since mlx-lm hands
that out after its second step is under way and mlxfill before.  mlx-dspark only tells
the time from its first token on: against it both are timed from there.  The clock stops with the
last token before the end of the turn.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from pathlib import Path

    from peers import Dspark


@dataclass(frozen=True)
class Run:
    """One answer: ids without the end-of-turn token.

    ``seconds``: from the first token on; ``decoding``: from the end of the prefill on, if known.
    """

    ids: tuple[int, ...]
    seconds: float
    forwards: int | None = None
    decoding: float | None = None

    @property
    def rate(self) -> float:
        """Tokens per second after the first."""
        return (len(self.ids) - 1) / self.seconds

    def times_faster(self, other: Run) -> float:
        """How many times faster than ``other`` on the clock that both have."""
        if self.decoding is not None and other.decoding is not None:
            return len(self.ids) / self.decoding / (len(other.ids) / other.decoding)
        return self.rate / other.rate


class PrefillClock:
    """Notes when a progress callback says that one prompt token is left."""

    def __init__(self) -> None:
        self.ended = 0.0

    def __call__(self, done: int, total: int) -> None:
        """Take a report of prompt tokens processed."""
        if done == total - 1:
            self.ended = time.perf_counter()


class Arm(Protocol):
    """Something that decodes."""

    name: str

    def run(self, prompt: Sequence[int], max_tokens: int) -> Run:
        """Continue ``prompt`` greedily by at most ``max_tokens`` ids."""

    def close(self) -> None:
        """Let go of the model."""


def timed(tokens: Iterable[int], ends: Collection[int], prefill: PrefillClock) -> Run:
    """Draw ``tokens`` and note when each arrives; end-of-turn ids do not count."""
    ids: list[int] = []
    first = last = 0.0
    for token in tokens:
        now = time.perf_counter()
        if token in ends:
            break
        first, last = first or now, now
        ids.append(token)
    return Run(tuple(ids), last - first, decoding=last - prefill.ended)


class MlxLmArm:
    """mlx-lm's own ``stream_generate`` on a model that nobody else touches."""

    name = "mlx-lm"

    def __init__(self, folder: Path) -> None:
        import mlx_lm

        # The third value comes only with return_config.
        self._model, self._tokenizer = mlx_lm.load(str(folder))[:2]

    def run(self, prompt: Sequence[int], max_tokens: int) -> Run:
        """Decode plainly."""
        import mlx_lm

        prefill = PrefillClock()
        responses = mlx_lm.stream_generate(
            self._model,
            self._tokenizer,
            list(prompt),
            max_tokens=max_tokens,
            prompt_progress_callback=prefill,
        )
        return timed((r.token for r in responses), self._tokenizer.eos_token_ids, prefill)

    def close(self) -> None:
        """Drop the model."""
        del self._model


class MlxfillArm:
    """mlxfill with the plugins named, none by default."""

    def __init__(self, folder: Path, plugins: Sequence[str] = ()) -> None:
        import mlxfill

        self.name = " + ".join(["mlxfill", *plugins])
        try:
            # Not the user's own config, whatever it says.
            self._engine = mlxfill.load(folder, plugins=list(plugins), config={})
            self._engine.prepare()
        except mlxfill.MlxfillError as error:
            raise SystemExit(str(error)) from None

    def run(self, prompt: Sequence[int], max_tokens: int) -> Run:
        """Decode through the engine; mlxfill never yields the end-of-turn token."""
        prefill = PrefillClock()
        pieces = self._engine.stream(
            list(prompt), max_tokens=max_tokens, on_prefill_progress=prefill
        )
        return timed((p.token for p in pieces if p.token is not None), (), prefill)

    def close(self) -> None:
        """Close the engine."""
        self._engine.close()


class DsparkArm:
    """mlx-dspark's prompt lookup, or its own plain greedy decoding, in its own process."""

    def __init__(self, process: Dspark, method: str = "lookup") -> None:
        self.name = f"mlx-dspark {method}"
        self._process, self._method = process, method

    def run(self, prompt: Sequence[int], max_tokens: int) -> Run:
        """Ask the process."""
        answer = self._process.ask(self._method, prompt, max_tokens)
        return Run(tuple(answer["ids"]), answer["seconds"], answer["forwards"])

    def close(self) -> None:
        """End the process."""
        self._process.close()
