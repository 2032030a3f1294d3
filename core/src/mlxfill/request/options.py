"""The options of one request, checked once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attrs import field, fields, frozen

from mlxfill import rules
from mlxfill.chat.markers import CONTROL, IN_CONTENT
from mlxfill.chat.schema import as_schema
from mlxfill.errors import InputError
from mlxfill.nearest import did_you_mean
from mlxfill.request import checks as legal
from mlxfill.sampling import Sampling, as_sampling

if TYPE_CHECKING:
    import os
    import threading

    import mlx.core as mx

    from mlxfill.checkpoint.checkpoint import Checkpoint
    from mlxfill.contracts import Schema
    from mlxfill.request.results import PromptCache

    LogitsProcessor = Callable[[mx.array, mx.array], mx.array]
    Sampler = Callable[[mx.array], mx.array]


NOT_SCORED = ("cache", "prompt_cache", "input_embeddings", "checkpoint", "on_checkpoint")
_CALL = legal.has("__call__")


@frozen(kw_only=True)
class Options:
    """How one request is generated.  Names that mlx-lm has mean what they mean there.

    ``max_tokens``: exact length limit of the reply; -1 unbounded, 0 nothing.
    ``sampling``: how tokens are drawn; its fields may be given beside the options instead.
    ``stop``: texts before which the reply ends.
    ``stop_in_reasoning``: stop texts count while the model thinks, too.
    ``logprobs``: report the log-probability of each token.
    ``top_logprobs``: report this many of the likeliest tokens at each position.
    ``prompt_logprobs``: score the prompt's tokens as well, with this many of the likeliest; the
    prompt is then read anew, and with a length limit of 0 nothing else is done.
    ``prefill_step_size``: prompt tokens in one forward.
    ``max_kv_size``: keep this many tokens in a rotating cache.
    ``kv_bits``: quantize the KV cache to this many bits.
    ``kv_group_size``: values of the quantized cache that share a scale.
    ``quantized_kv_start``: quantize once the cache holds this many tokens.
    ``append_chunk``: tokens of an asserted span in one forward; 0: as many as fit.
    ``max_span``: longest span that a source may append at once.
    ``num_draft_tokens``: most tokens that a drafter guesses at once; None: the engine's value.
    ``cache``: a ``PromptCache`` or mlx-lm cache list that holds a strict prefix of the prompt; it
    stays as it is.
    ``prompt_cache``: mlx-lm's semantics: the prompt continues it, and it is updated in place.
    ``session``: name of the conversation; its next request starts from the cached prefix.
    ``snapshot_at``: number of prompt tokens after which ``on_prefill_done`` is called.
    ``on_prefill_done``: called once with a ``PromptCache`` of exactly that many tokens.
    ``on_prefill_progress``: called with the number of prompt tokens read, and of all.
    ``cancel``: an event; generation stops at the next boundary, in a prompt at the next layer.
    ``eos_token_ids``: ids that end the reply; None: the tokenizer's.
    ``input_embeddings``: embeddings of the prompt, as in mlx-lm.
    ``sampler``: log-probabilities to ids, as in mlx-lm.
    ``logits_processors``: called with all tokens and the logits of each position, as in mlx-lm.
    ``phase_times``: time the phases of each window; removes the overlap of host and device.
    ``sources_policy``: "verify": asserts of this request are verified instead of appended.
    ``sources``: plugins that may propose tokens, of those that are on; None: all.
    ``keep_cache``: hand the caches out in ``Result.cache``.
    ``checkpoint``: a file, replaced as the reply grows and at its end, for ``Engine.resume``.
    ``checkpoint_every``: tokens between two checkpoints; None: 256, 0: only at the end.
    ``on_checkpoint``: called with each ``Checkpoint``.
    ``delimiters``: ids at which copied spans end; those of plugins are added.
    ``template_options``: variables of the chat template.
    ``special_tokens_in_content``: what a marker of the model (``<|im_end|>``) is in the text of a
    message or tool: "control", as in mlx-lm, or "text" like any other.
    ``schema``: what the reply must be: a JSON schema, ``{"type": "json_object"}`` or another
    ``response_format`` of OpenAI's, ``{"regex": ...}`` or ``{"lark": ...}``; a plugin enforces it.
    ``adapters``: name of the mounted LoRA adapter to use; None: the model as it is.
    """

    max_tokens: int = field(default=512, validator=rules.whole(-1))
    sampling: Sampling = field(factory=Sampling, converter=as_sampling)
    stop: tuple[str, ...] = field(default=(), converter=legal.stops)
    stop_in_reasoning: bool = False
    logprobs: bool = False
    top_logprobs: int = field(default=0, validator=rules.whole(0))
    prompt_logprobs: int | None = field(default=None, validator=rules.whole(0, optional=True))
    prefill_step_size: int = field(default=2048, validator=rules.whole(1))
    max_kv_size: int | None = field(default=None, validator=rules.whole(1, optional=True))
    kv_bits: int | None = field(default=None, validator=rules.one_of(None, 2, 3, 4, 6, 8))
    kv_group_size: int = field(default=64, validator=rules.one_of(32, 64, 128))
    quantized_kv_start: int = field(default=5000, validator=rules.whole(0))
    append_chunk: int = field(default=0, validator=rules.whole(0))
    max_span: int = field(default=64, validator=rules.whole(2))
    num_draft_tokens: int | None = field(default=None, validator=rules.whole(0, optional=True))
    cache: PromptCache | list[Any] | None = field(default=None, validator=legal.caches)
    prompt_cache: list[Any] | None = field(default=None, validator=legal.own_caches)
    session: str | None = field(default=None, validator=legal.name)
    snapshot_at: int | None = field(default=None, validator=rules.whole(1, optional=True))
    on_prefill_done: Callable[[PromptCache], None] | None = field(default=None, validator=_CALL)
    on_prefill_progress: Callable[[int, int], None] | None = field(default=None, validator=_CALL)
    cancel: threading.Event | None = field(default=None, validator=legal.has("is_set"))
    eos_token_ids: Sequence[int] | None = field(default=None, validator=legal.ids)
    input_embeddings: mx.array | None = field(default=None, validator=legal.embeddings)
    sampler: Sampler | None = field(default=None, validator=_CALL)
    logits_processors: Sequence[LogitsProcessor] = field(
        default=(), converter=legal.listed, validator=legal.functions
    )
    phase_times: bool = False
    sources_policy: str = field(default="trust", validator=rules.one_of("trust", "verify"))
    sources: Sequence[str] | None = field(default=None, validator=legal.names)
    keep_cache: bool = False
    checkpoint: str | os.PathLike[str] | None = field(default=None, validator=legal.path)
    checkpoint_every: int | None = field(default=None, validator=rules.whole(0, optional=True))
    on_checkpoint: Callable[[Checkpoint], None] | None = field(default=None, validator=_CALL)
    delimiters: Sequence[int] = field(default=(), validator=legal.ids)
    template_options: Mapping[str, Any] = field(
        factory=dict,
        converter=legal.none_is_empty,
        validator=legal.mapping,
    )
    special_tokens_in_content: str = field(default=CONTROL, validator=rules.one_of(*IN_CONTENT))
    schema: Schema | None = field(default=None, converter=as_schema)
    adapters: str | None = field(default=None, validator=legal.name)

    def __attrs_post_init__(self) -> None:
        """Check what one field alone cannot tell."""
        if self.cache is not None and self.prompt_cache is not None:
            message = "give either cache (stays yours) or prompt_cache (updated in place), not both"
            raise InputError(message)
        if self.prompt_logprobs is not None:
            for name in NOT_SCORED:
                if getattr(self, name) is not None:
                    raise InputError(
                        f"prompt_logprobs reads all of the prompt anew: leave out {name}"
                    )
        if self.kv_bits is not None and self.max_kv_size is not None:
            raise InputError(
                f"kv_bits {self.kv_bits} cannot be used with max_kv_size {self.max_kv_size}: mlx-lm"
                " does not quantize rotating caches; leave one of them out"
            )


OPTION_NAMES = frozenset(f.name for f in fields(Options))
SAMPLING_NAMES = frozenset(f.name for f in fields(Sampling))
SPELLINGS = {
    "temp": "temperature",  # mlx-lm's word, and the command line's
    "chat_template_config": "template_options",  # the command line's
    "chat_template_kwargs": "template_options",  # the server's
    "response_format": "schema",  # OpenAI's
    "regex": "schema",
    "grammar": "schema",
    "max_completion_tokens": "max_tokens",
    "n_predict": "max_tokens",
}
"""What options are called elsewhere, on the command line for one."""


def option_meant(name: str, *others: str) -> str:
    """A hint at the option, or another keyword, that an unknown name may stand for; or nothing."""
    plain = name.lstrip("-").replace("-", "_")
    known = [*OPTION_NAMES, *SAMPLING_NAMES, *others]
    if plain in SPELLINGS or plain in known:
        return f"; did you mean {SPELLINGS.get(plain, plain)!r}?"
    return did_you_mean(name, known)


def make_options(defaults: Mapping[str, Any], given: Mapping[str, Any]) -> Options:
    """``Options`` from config defaults and keyword arguments; ``InputError`` for unknown ones.

    Sampling fields (``temperature=0.7``) may be given beside the options.
    """
    unknown = [n for n in given if n not in OPTION_NAMES and n not in SAMPLING_NAMES]
    if unknown:
        message = f"unknown option {unknown[0]!r}{option_meant(unknown[0])}"
        raise InputError(message)
    loose = {n: v for n, v in given.items() if n in SAMPLING_NAMES}
    if loose and given.get("sampling") is not None:
        message = f"give {min(loose)} inside sampling or beside it, not both"
        raise InputError(message)
    merged = {n: v for n, v in defaults.items() if n in OPTION_NAMES}
    merged.update({n: v for n, v in given.items() if n in OPTION_NAMES})
    if given.get("sampling") is None:
        base = {n: v for n, v in defaults.items() if n in SAMPLING_NAMES}
        merged["sampling"] = Sampling(**{**base, **loose})
    return Options(**merged)
