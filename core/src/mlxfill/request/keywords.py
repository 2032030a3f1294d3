"""The keywords that requests take, for editors and type checkers: ``Options`` says what they do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict

if TYPE_CHECKING:
    import os
    import threading

    import mlx.core as mx

    from mlxfill.chat.prompt import Prompt
    from mlxfill.checkpoint.checkpoint import Checkpoint
    from mlxfill.contracts import Schema
    from mlxfill.request.options import LogitsProcessor, Sampler
    from mlxfill.request.results import PromptCache
    from mlxfill.sampling import Sampling

    PromptInput: TypeAlias = (
        str | Sequence[int] | mx.array | Sequence[Mapping[str, Any]] | Mapping[str, Any] | Prompt
    )
    """What a request begins with: a text, ids, chat messages, or what ``Engine.check`` made."""


class SamplingOptions(TypedDict, total=False):
    """The fields of ``Sampling``, given beside the other options."""

    temperature: float
    top_p: float
    top_k: int
    min_p: float
    min_tokens_to_keep: int
    xtc_probability: float
    xtc_threshold: float
    xtc_special_tokens: Sequence[int]
    seed: int | None
    repetition_penalty: float | None
    repetition_context_size: int
    presence_penalty: float | None
    presence_context_size: int
    frequency_penalty: float | None
    frequency_context_size: int
    logit_bias: Mapping[int, float] | None


class ResumeOptions(TypedDict, total=False):
    """What may be given again to a checkpoint."""

    cancel: threading.Event | None
    checkpoint: str | os.PathLike[str] | None
    checkpoint_every: int | None
    keep_cache: bool
    logits_processors: Sequence[LogitsProcessor] | None
    max_tokens: int
    on_checkpoint: Callable[[Checkpoint], None] | None
    sampler: Sampler | None


class RequestOptions(SamplingOptions, ResumeOptions, total=False):
    """Every keyword of ``Engine.generate`` and ``stream`` but ``tools``."""

    sampling: Sampling | Mapping[str, Any] | None
    stop: str | Sequence[str] | None
    stop_in_reasoning: bool
    logprobs: bool
    top_logprobs: int
    prompt_logprobs: int | None
    prefill_step_size: int
    max_kv_size: int | None
    kv_bits: Literal[2, 3, 4, 6, 8] | None
    kv_group_size: Literal[32, 64, 128]
    quantized_kv_start: int
    append_chunk: int
    max_span: int
    num_draft_tokens: int | None
    cache: PromptCache | list[Any] | None
    prompt_cache: list[Any] | None
    session: str | None
    snapshot_at: int | None
    on_prefill_done: Callable[[PromptCache], None] | None
    on_prefill_progress: Callable[[int, int], None] | None
    eos_token_ids: Sequence[int] | None
    input_embeddings: mx.array | None
    phase_times: bool
    sources_policy: Literal["trust", "verify"]
    sources: Sequence[str] | None
    delimiters: Sequence[int]
    template_options: Mapping[str, Any] | None
    special_tokens_in_content: Literal["control", "text"]
    schema: Schema | Mapping[str, Any] | None
    adapters: str | None
