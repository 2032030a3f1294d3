"""mlx-lm's ``stream_generate``, answered by the engine: an mlx-lm user changes one import."""

from __future__ import annotations

import time
from collections.abc import Mapping
from inspect import signature
from typing import TYPE_CHECKING, Any

import mlx.core as mx
from mlx_lm.generate import GenerationResponse, generation_stream

from mlxfill.engine.engine import Engine
from mlxfill.errors import InputError
from mlxfill.loading.given import check_loaded
from mlxfill.nearest import did_you_mean
from mlxfill.request.options import SAMPLING_NAMES
from mlxfill.request.results import SAMPLED

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from mlx import nn
    from mlx_lm.tokenizer_utils import TokenizerWrapper

    from mlxfill.decode.run import Run
    from mlxfill.decode.runstate import RunState
    from mlxfill.decode.sequence import Emitted
    from mlxfill.model.reading import Stream

MLX_LM_DEFAULTS = {
    "logprobs": True,
    "max_kv_size": None,
    "prefill_step_size": 2048,
    "kv_bits": None,
    "kv_group_size": 64,
    "quantized_kv_start": 5000,
}
"""The user's ``[generation]`` table says nothing about a call written for mlx-lm."""

NO_PLACE = ("stop", "checkpoint", "on_checkpoint", "keep_cache", "top_logprobs")
"""Options whose outcome mlx-lm's responses have no place for."""

ENGINE_OPTIONS = tuple(
    name for name in signature(Engine).parameters if name not in {"model", "tokenizer", "stream"}
)
"""What ``engine_options`` may hold; the others are arguments here."""

_ATTRIBUTE = "_mlxfill_engines"


class _Engines(dict[str, Engine]):
    """The engines of one model, by options."""

    def __deepcopy__(self, _: object) -> _Engines:
        """A copy of the model has none."""
        return _Engines()


def stream_generate(  # noqa: PLR0913, PLR0917 - mlx-lm's signature
    model: nn.Module,
    tokenizer: TokenizerWrapper,
    prompt: str | mx.array | Sequence[int],
    max_tokens: int = 256,
    draft_model: nn.Module | None = None,
    stream: Stream = generation_stream,
    *,
    engine_options: Mapping[str, Any] | None = None,
    **kwargs: Any,  # noqa: ANN401
) -> Generator[GenerationResponse, None, None]:
    """Generate text as ``mlx_lm.stream_generate`` does, with the plugins of the config.

    Arguments and response fields are mlx-lm's; its samplers, logits processors and prompt
    caches (updated in place) are taken.  ``from_draft`` is true for every token that the
    target did not choose alone.  ``engine_options``: keywords of ``mlxfill.Engine``
    (``plugins``, ``config``, ``draft``, ...).

    :raises ValueError: ``max_tokens`` is 0, as in mlx-lm, a value or a name in ``engine_options``
        is not legal, or the model is a name where mlx-lm takes a loaded one.
    """
    check_loaded(model, tokenizer)
    _check_engine_options(engine_options)
    if max_tokens == 0:
        message = "max_tokens must be at least 1, or -1 for no limit, not 0"
        raise InputError(message)
    if draft_model is not None:
        message = "draft_model: give engine_options={'draft': FOLDER} to use a draft model"
        raise InputError(message)
    for name in NO_PLACE:
        if kwargs.get(name):
            raise InputError(f"{name} is an option of mlxfill.Engine, not of stream_generate")
    kwargs.pop("num_draft_tokens", None)
    if "prompt_progress_callback" in kwargs:
        kwargs["on_prefill_progress"] = kwargs.pop("prompt_progress_callback")
    if kwargs.get("sampling") is None:  # what the config says does not count
        kwargs["sampling"] = {name: kwargs.pop(name) for name in SAMPLING_NAMES & kwargs.keys()}
    options = {**MLX_LM_DEFAULTS, **kwargs}
    engine = _engine(model, tokenizer, stream, dict(engine_options or {}))
    run = engine.stream(prompt, max_tokens=max_tokens, **options)
    return _with_cache(run, _responses(engine, run.state, max_tokens))


def _check_engine_options(given: object) -> None:
    """Raise ``InputError`` unless they are keywords of an engine, or None."""
    if given is None:
        return
    if not isinstance(given, Mapping):
        raise InputError(
            f"engine_options must be a mapping of options of mlxfill.Engine, not {given!r}"
        )
    for name in given:
        if name not in ENGINE_OPTIONS:
            hint = (
                did_you_mean(str(name), ENGINE_OPTIONS) or f"; legal: {', '.join(ENGINE_OPTIONS)}"
            )
            raise InputError(f"engine_options: unknown option {name!r}{hint}")


def _engine(
    model: nn.Module, tokenizer: TokenizerWrapper, stream: Stream, options: dict[str, Any]
) -> Engine:
    """The model's engine for these options: binding and probing happen once a model."""
    engines: _Engines = vars(model).setdefault(_ATTRIBUTE, _Engines())
    key = f"{id(tokenizer)} {id(stream)} {sorted(options.items(), key=str)!r}"
    if key not in engines:
        engines[key] = Engine(model, tokenizer, stream=stream, **options)
    return engines[key]


def _with_cache(
    run: Run, responses: Generator[GenerationResponse, None, None]
) -> Generator[GenerationResponse, None, None]:
    """mlx-lm leaves every token of the reply, EOS included, in the caller's ``prompt_cache``."""
    try:
        yield from responses
    except GeneratorExit:  # left at a response, where the caches hold what they should
        run.close()
    except BaseException as error:
        run.state.abandon(error)
        raise
    if run.options.prompt_cache is not None:
        run.state.fill_caches()


def _responses(
    engine: Engine,
    run: RunState,
    max_tokens: int,
) -> Generator[GenerationResponse, None, None]:
    detokenizer = engine.tokenizer.detokenizer
    size = len(run.request.prompt_ids)
    started = time.perf_counter()
    prompt_tps, count, last = 0.0, 0, None

    def respond(
        token: int, logprobs: mx.array | None, origin: str, reason: str | None
    ) -> GenerationResponse:
        return GenerationResponse(
            text=detokenizer.last_segment,
            token=token,
            logprobs=logprobs,  # type: ignore[arg-type]  # only a generation method has none
            from_draft=origin != SAMPLED,
            prompt_tokens=size,
            prompt_tps=prompt_tps,
            generation_tokens=count,
            generation_tps=count / max(time.perf_counter() - started, 1e-9),
            peak_memory=mx.get_peak_memory() / 1e9,
            finish_reason=reason,
        )

    for last in run.emitted():
        count += 1
        if count == 1:
            now = time.perf_counter()
            prompt_tps, started = size / (now - started), now
        detokenizer.add_token(last.token)
        if count == max_tokens:
            break
        yield respond(last.token, last.logprobs, last.origin, None)
    run.finish()
    detokenizer.finalize()
    stopped = run.ending is not None and run.ending.reason == "stop"
    if count == max_tokens or not stopped:
        if last is not None:
            yield respond(last.token, last.logprobs, last.origin, "stop" if stopped else "length")
        return
    if not count:
        prompt_tps = size / max(time.perf_counter() - started, 1e-9)
    count += 1
    yield respond(*_end(run, last), SAMPLED, "stop")


def _end(run: RunState, last: Emitted | None) -> tuple[int, mx.array | None]:
    """The id that ended the reply, and what it was chosen from.

    Where a reply ended because it was whole, an id that says so, as mlx-lm's callers expect.
    """
    ending = run.ending
    if ending is not None and ending.eos is not None:
        return ending.eos, ending.logprobs
    ids = run.request.eos_ids
    said = last.token if last is not None else 0
    return min(ids, default=said), None if last is None else last.logprobs
