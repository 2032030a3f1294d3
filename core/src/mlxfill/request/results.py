"""What a caller gets back."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

from attrs import Factory, asdict, define, field, frozen

from mlxfill.contracts import Fault  # noqa: TC001 - attrs resolves it

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sized

    import mlx.core as mx

SAMPLED = "sampled"
"""Origin of tokens that the target alone chose."""

_PER_TOKEN = ("rounds", "cache_tokens")
"""Counts of one request that are as long as its session."""

FinishReason = Literal["stop", "length", "cancelled", "error"]


def _number(values: Sized | None) -> str:
    """How many: a ``repr`` for lists of one item a token."""
    return "None" if values is None else f"<{len(values)}>"


@define
class Stats:
    """Counters and times of one request.  Times in ms, rates in tokens per second.

    ``prompt_tokens``: length of the prompt.
    ``cached_tokens``: prompt tokens that a cache held already.
    ``generated_tokens``: length of the reply.
    ``target_forwards``: forwards after the prompt; one that only found the end does not count, nor
    does a step that was dispatched before the end was known.
    ``prefill_ms``: time to read the prompt.
    ``decode_ms``: time from there to the last token.
    ``seed``: what was sampled with.
    ``fill``: counters of asserted spans, and those of the sources (docs/drafters.md).
    ``spec``: counters of verified spans and of the drafter (docs/drafters.md).
    ``rounds``: tokens emitted by each forward.
    ``cache_tokens``: the exact ids that the caches hold.
    """

    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0
    target_forwards: int = 0
    prefill_ms: float = 0.0
    decode_ms: float = 0.0
    seed: int = 0
    fill: dict[str, Any] = field(factory=dict)
    spec: dict[str, Any] = field(factory=dict)
    rounds: list[int] = field(factory=list, repr=_number)
    cache_tokens: tuple[int, ...] = field(default=(), repr=_number)

    @property
    def tokens_per_forward(self) -> float:
        """Generated tokens by ``target_forwards``: 1 in plain decoding."""
        return self.generated_tokens / max(self.target_forwards, 1)

    @property
    def prefill_tps(self) -> float:
        """Prompt tokens processed per second."""
        done = self.prompt_tokens - self.cached_tokens
        return done / (self.prefill_ms / 1e3) if self.prefill_ms else 0.0

    @property
    def decode_tps(self) -> float:
        """Tokens per second after the first one."""
        later = max(self.generated_tokens - 1, 0)
        return later / (self.decode_ms / 1e3) if self.decode_ms else 0.0

    def as_dict(self) -> dict[str, Any]:
        """Everything, JSON-ready; without the per-token lists, which nobody reads for it."""
        data = asdict(self, filter=lambda each, _: each.name not in _PER_TOKEN)
        rates = {n: getattr(self, n) for n in ("tokens_per_forward", "prefill_tps", "decode_tps")}
        return {k: round(v, 3) if isinstance(v, float) else v for k, v in {**data, **rates}.items()}


@define
class Piece:
    """One token as it streams.

    ``text``: what became readable with this token; empty for an unfinished character, or the
    possible start of a stop string.
    ``token``: its id; None in a last piece that adds none.
    ``origin``: who chose it: ``"sampled"``, or the proposal's ``origin``.
    ``logprobs``: when asked for, natural logarithms ``[V]`` in the logits' dtype, after processors
    and before filters.
    ``top_logprobs``: when asked for, (id, log-probability) pairs, best first.
    ``finish_reason``: of the last piece.
    """

    text: str
    token: int | None
    origin: str = SAMPLED
    logprobs: mx.array | None = None
    top_logprobs: list[tuple[int, float]] | None = None
    finish_reason: FinishReason | None = None


@define
class Result:
    """A finished request.

    ``text``: all that the model wrote.
    ``tokens``: its ids, without the EOS that ended it.
    ``origins``: for each token, who chose it.
    ``finish_reason``: ``"stop"``, ``"length"``, ``"cancelled"`` or ``"error"``.
    ``stats``: counters and times.
    ``faults``: what went wrong beside the request.
    ``tool_calls``: ``{"name": ..., "arguments": {...}}`` each.
    ``logprobs``: when asked for, the natural logarithm for each token.
    ``top_logprobs``: when asked for, (id, log-probability) pairs for each token, best first.
    ``cache``: with ``keep_cache``, to begin another request with.
    ``prompt_logprobs``: when asked for, as of the reply; the first token has none.
    ``prompt_top_logprobs``: the same for the likeliest tokens.
    ``reasoning``: what the model thought first, by its own markers.
    ``content``: the rest of the text, markup of calls included.
    """

    text: str
    tokens: list[int] = field(repr=_number)
    origins: list[str] = field(repr=_number)
    finish_reason: FinishReason
    stats: Stats
    faults: list[Fault] = field(factory=list)
    tool_calls: list[Mapping[str, Any]] = field(factory=list)
    logprobs: list[float] | None = field(default=None, repr=_number)
    top_logprobs: list[list[tuple[int, float]]] | None = field(default=None, repr=_number)
    cache: PromptCache | None = None
    prompt_logprobs: list[float | None] | None = field(default=None, repr=_number)
    prompt_top_logprobs: list[list[tuple[int, float]]] | None = field(default=None, repr=_number)
    reasoning: str = field(default="", repr=False)
    content: str = field(default=Factory(lambda self: self.text, takes_self=True), repr=False)

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready, as ``mlxfill generate --json`` prints it."""
        data: dict[str, Any] = {
            "text": self.text,
            "reasoning": self.reasoning,
            "content": self.content,
            "tokens": self.tokens,
            "origins": self.origins,
            "finish_reason": self.finish_reason,
            "tool_calls": [dict(c) for c in self.tool_calls],
            "faults": [asdict(f) for f in self.faults],
            "stats": self.stats.as_dict(),
        }
        if self.logprobs is not None:
            data["logprobs"] = [finite(p) for p in self.logprobs]
        if self.prompt_logprobs is not None:
            data["prompt_logprobs"] = [finite(p) for p in self.prompt_logprobs]
        for name in ("top_logprobs", "prompt_top_logprobs"):
            tops = getattr(self, name)
            if tops is not None:
                data[name] = [[(token, finite(p)) for token, p in top] for top in tops]
        return data


def finite(value: float | None) -> float | None:
    """JSON knows no infinity: what a processor ruled out has no log-probability."""
    return value if value is not None and math.isfinite(value) else None


def _as_tuple(ids: Iterable[int]) -> tuple[int, ...]:
    return tuple(ids)


@frozen
class PromptCache:
    """Prompt caches and exactly the ids that they hold.  A request leaves them as they are.

    ``tokens``: the ids.
    ``caches``: an mlx-lm prompt cache.
    ``adapters``: the adapter that was on; only requests under the same one can use it.
    """

    tokens: tuple[int, ...] = field(converter=_as_tuple, repr=_number)
    caches: list[Any] = field(repr=_number)
    adapters: str | None = None
