"""Sampling that depends on seed, position and context alone.

Each position draws with a key made of (seed, position).  So a fixed seed gives the same
tokens whether they are drawn one at a time or many in one window, with any set of
sources and drafters.  Drawing is the Gumbel-max trick, as in ``mlx.core.random.categorical``;
a drafter that uses the key of the position it predicts agrees with the target about as
often as the two distributions overlap (Daliri, Musco, Suresh: "Coupling without
Communication and Drafter-Invariant Speculative Decoding", 2024).

The filters are those of mlx-lm in mlx-lm's order (``mlxfill.filters``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from attrs import evolve, field, fields, frozen

from mlxfill import filters, rules
from mlxfill.errors import InputError
from mlxfill.nearest import did_you_mean

if TYPE_CHECKING:
    import mlx.core as mx
    from attrs import Attribute

    LogitsProcessor = Callable[[mx.array, mx.array], mx.array]
    Sampler = Callable[[mx.array], mx.array]
    Filter = Callable[[mx.array], mx.array]

SEEDS = 1 << 63
_MASK = (1 << 64) - 1
_UNLIKELIEST = 128.0
"""What is left to draw from always holds a token likelier than ``exp`` of minus this."""


def _seed(_: object, attribute: Attribute[Any], value: object) -> None:
    """A seed, or None."""
    if value is not None and not (rules.is_whole(value) and 0 <= value < SEEDS):
        rules.refuse(attribute, "a whole number from 0 to 2**63 - 1", value)


def _biases(_: object, attribute: Attribute[Any], value: object) -> None:
    """Ids with numbers below infinity, or None."""
    if value is None:
        return
    if not isinstance(value, Mapping):
        raise InputError(f"{attribute.name} must map token ids to numbers, not {value!r}")
    for bias in value.values():
        if not isinstance(bias, int | float) or not bias < float("inf"):
            legal = "map token ids to numbers below infinity"
            raise InputError(f"{attribute.name} must {legal}, not to {bias!r}")


_LONGEST = (1 << 31) - 1
"""Tokens; mlx slices by 32-bit integers."""
_PENALTY = rules.number(0, optional=True)
_SIGNED_PENALTY = rules.number(-1e6, 1e6, optional=True)


def _ids(value: Iterable[int]) -> tuple[int, ...]:
    """A tuple of ids.  ``InputError`` for anything else."""
    held = tuple(value) if isinstance(value, Iterable) else None
    if held is None or not all(rules.is_whole(each) for each in held):
        message = f"xtc_special_tokens must be a list of token ids, not {value!r}"
        raise InputError(message)
    return held


@frozen(kw_only=True)
class Sampling:
    """How tokens are chosen from logits.  Names, defaults and order are mlx-lm's.

    A value out of range raises ``InputError`` with the legal range.

    ``temperature``: 0 always takes the likeliest token.
    ``top_p``: sample from the likeliest tokens that share this probability; 0 or 1: off.
    ``top_k``: sample from this many of the likeliest tokens; 0: off.
    ``min_p``: drop tokens less likely than the likeliest by this factor; 0: off.
    ``min_tokens_to_keep``: fewest tokens that filters leave.
    ``xtc_probability``: how often XTC drops the likeliest tokens; 0: off.
    ``xtc_threshold``: probability above which XTC drops all but the least likely token.
    ``xtc_special_tokens``: ids that XTC never drops.
    ``seed``: fixes the draws; None: one is chosen and reported.
    ``repetition_penalty``: scales the logits of recent tokens down; None or 1: off.
    ``repetition_context_size``: how many tokens are recent.
    ``presence_penalty``: is subtracted from the logits of recent tokens.
    ``presence_context_size``: how many tokens are recent.
    ``frequency_penalty``: is subtracted once for each recent occurrence.
    ``frequency_context_size``: how many tokens are recent.
    ``logit_bias``: is added to the logits of these ids.
    """

    temperature: float = field(default=0.0, validator=rules.number(0, 1e6))
    top_p: float = field(default=0.0, validator=rules.number(0, 1))
    top_k: int = field(default=0, validator=rules.whole(0))
    min_p: float = field(default=0.0, validator=rules.number(0, 1))
    min_tokens_to_keep: int = field(default=1, validator=rules.whole(1))
    xtc_probability: float = field(default=0.0, validator=rules.number(0, 1))
    xtc_threshold: float = field(default=0.1, validator=rules.number(0, 0.5))
    xtc_special_tokens: tuple[int, ...] = field(default=(), converter=_ids)
    seed: int | None = field(default=None, validator=_seed)
    repetition_penalty: float | None = field(default=None, validator=_PENALTY)
    repetition_context_size: int = field(default=20, validator=rules.whole(1, _LONGEST))
    presence_penalty: float | None = field(default=None, validator=_SIGNED_PENALTY)
    presence_context_size: int = field(default=20, validator=rules.whole(1, _LONGEST))
    frequency_penalty: float | None = field(default=None, validator=_SIGNED_PENALTY)
    frequency_context_size: int = field(default=20, validator=rules.whole(1, _LONGEST))
    logit_bias: Mapping[int, float] | None = field(default=None, validator=_biases)

    @property
    def greedy(self) -> bool:
        """Whether the most likely token is taken."""
        return self.temperature == 0

    def seeded(self) -> Sampling:
        """The same with a seed: ``mlx.core.random.seed`` decides it when none was given."""
        if self.seed is not None:
            return self
        import mlx.core as mx

        high, low = cast("list[int]", mx.random.randint(0, 1 << 31, (2,)).tolist())
        return evolve(self, seed=high << 31 | low)

    def check_vocabulary(self, size: int) -> None:
        """Raise ``InputError`` for a number or an id beyond the vocabulary."""
        if self.top_k >= size:
            message = f"top_k must be below the vocabulary size {size}, not {self.top_k}"
            raise InputError(message)
        if self.min_tokens_to_keep > size:
            kept = self.min_tokens_to_keep
            raise InputError(
                f"min_tokens_to_keep must be at most the vocabulary's {size}, not {kept}"
            )
        named = {"logit_bias": self.logit_bias or (), "xtc_special_tokens": self.xtc_special_tokens}
        for name, tokens in named.items():
            for token in tokens:
                if not rules.is_whole(token) or not 0 <= token < size:
                    message = f"{name} names token {token!r}; the vocabulary is 0 to {size - 1}"
                    raise InputError(message)

    def processors(self) -> list[LogitsProcessor]:
        """mlx-lm's processors for penalties and bias."""
        from mlx_lm.sample_utils import make_logits_processors

        return list(
            make_logits_processors(
                dict(self.logit_bias) if self.logit_bias else None,
                self.repetition_penalty,
                self.repetition_context_size,
                self.presence_penalty,
                self.presence_context_size,
                self.frequency_penalty,
                self.frequency_context_size,
            )
        )


def position_seed(seed: int, position: int) -> int:
    """64 mixed bits of (seed, position): splitmix64 (Steele, Lea, Flood 2014)."""
    z = (seed * 0x9E3779B97F4A7C15 + (position + 1) * 0xD1B54A32D192ED03) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


class Chooser:
    """Chooses one token a row of log-probabilities, by (seed, position).

    It is the ``DraftSampling`` that drafters are handed; their tests make one of a ``Sampling``.
    """

    def __init__(self, sampling: Sampling, sampler: Sampler | None = None) -> None:
        """``sampling`` must carry a seed; an mlx-lm ``sampler`` takes the place of its filters."""
        from mlx_lm.sample_utils import greedy_sampler

        if sampling.seed is None:
            message = "a chooser needs a seed"
            raise InputError(message)
        self.sampling = sampling
        self.seed = sampling.seed
        self.greedy = sampler is greedy_sampler or (sampler is None and sampling.greedy)
        self.foreign = None if self.greedy else sampler
        self._filters = [] if self.greedy or sampler else _filters(sampling)
        self._by_row = sampling.xtc_probability > 0

    def choose(self, logprobs: mx.array, positions: Sequence[int]) -> mx.array:
        """``[n, V]`` log-probabilities at ``n`` absolute positions to ``[n]`` ids, lazily."""
        import mlx.core as mx

        if self.greedy:
            return mx.argmax(logprobs, axis=-1)
        if self.foreign is not None or self._by_row:
            rows = [self._choose_keyed(logprobs[i : i + 1], p) for i, p in enumerate(positions)]
            return mx.concatenate(rows)
        return self._draw(self._filtered(logprobs), positions)

    def draw(self, logits: mx.array, positions: Sequence[int]) -> mx.array:
        """The same from raw logits: what drafters are handed as ``DraftSampling``."""
        import mlx.core as mx

        if self.greedy:
            return mx.argmax(logits, axis=-1)
        return self.choose(logits - mx.logsumexp(logits, axis=-1, keepdims=True), positions)

    def evolved(self, **changes: Any) -> Chooser:  # noqa: ANN401 - fields of Sampling
        """A chooser with the same seed and keys and other values; never a foreign sampler."""
        return Chooser(evolve(self.sampling, **changes))

    def scores(self, logprobs: mx.array, positions: Sequence[int]) -> mx.array:
        """``[n, V]`` values whose argmax is the choice; their top-2 gap is the margin."""
        import mlx.core as mx

        if self.greedy:
            return logprobs
        if self.foreign is not None or self._by_row:
            message = "a foreign sampler or XTC gives no margins"
            raise InputError(message)
        scaled = self._scaled(self._filtered(logprobs))
        noise = mx.vmap(lambda row, key: mx.random.gumbel(row.shape, row.dtype, key=key))
        return scaled + noise(scaled, self._keys(positions))

    def _filtered(self, logprobs: mx.array) -> mx.array:
        for apply in self._filters:
            logprobs = apply(logprobs)
        return logprobs

    def _scaled(self, logprobs: mx.array) -> mx.array:
        """By the temperature; where the likeliest would become infinite too, beside it."""
        import mlx.core as mx

        factor = 1.0 / self.sampling.temperature
        most = mx.finfo(logprobs.dtype).max
        if factor * _UNLIKELIEST < most:
            return logprobs * factor
        return (logprobs - logprobs.max(axis=-1, keepdims=True)) * min(factor, most)

    def _keys(self, positions: Sequence[int]) -> mx.array:
        import mlx.core as mx

        seeds = [position_seed(self.seed, p) for p in positions]
        return mx.array([(s >> 32, s & 0xFFFFFFFF) for s in seeds], mx.uint32)

    def _draw(self, logprobs: mx.array, positions: Sequence[int]) -> mx.array:
        import mlx.core as mx

        scaled, keys = self._scaled(logprobs), self._keys(positions)
        if len(positions) == 1:  # the same draw, without the trace, which takes the host longer
            return mx.random.categorical(scaled[0], key=keys[0])[None]
        draw = mx.vmap(lambda row, key: mx.random.categorical(row, key=key))
        return draw(scaled, keys)

    def _choose_keyed(self, row: mx.array, position: int) -> mx.array:
        """One row with the global generator set to this position's key, then set back."""
        import mlx.core as mx

        state: Any = mx.random.state  # a list of one key; typed as an object
        high, low = state[0].tolist()
        mx.random.seed(position_seed(self.seed, position))
        try:
            if self.foreign is not None:
                return _checked(self.foreign(row))
            return mx.random.categorical(self._scaled(self._filtered(row)))
        finally:
            mx.random.seed(high << 32 | low)


def _checked(chosen: object) -> mx.array:
    """What a foreign sampler made of one row: one id ``[1]``.  Raises ``InputError``."""
    import mlx.core as mx

    if isinstance(chosen, mx.array) and chosen.shape == (1,):
        return chosen
    shown = f"shape {chosen.shape}" if isinstance(chosen, mx.array) else f"{chosen!r:.80}"
    message = f"sampler must return an array of one id a row, of shape (1,), not {shown}"
    raise InputError(message)


def _filters(s: Sampling) -> list[Filter]:
    """The filters that are on, in the order of ``mlx_lm.sample_utils.make_sampler``."""
    special = s.xtc_special_tokens
    made: list[Filter] = []
    if 0 < s.top_p < 1:
        made.append(lambda x: filters.top_p(x, s.top_p))
    if s.min_p:
        made.append(lambda x: filters.min_p(x, s.min_p, s.min_tokens_to_keep))
    if s.xtc_probability > 0:
        made.append(lambda x: filters.xtc(x, s.xtc_probability, s.xtc_threshold, special))
    if s.top_k:
        made.append(lambda x: filters.top_k(x, s.top_k))
    return made


def as_sampling(value: object) -> Sampling:
    """A ``Sampling``, or a mapping of its fields; ``InputError`` names an unknown field."""
    if value is None:
        return Sampling()
    if isinstance(value, Sampling):
        return value
    if isinstance(value, Mapping):
        known = [each.name for each in fields(Sampling)]
        for name in value:
            if name not in known:
                message = f"sampling has no {name!r}{did_you_mean(str(name), known)}"
                raise InputError(message)
        return Sampling(**value)
    message = f"sampling must be a Sampling or a mapping, not {type(value).__name__}"
    raise InputError(message)
