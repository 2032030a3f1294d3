"""From a checked body to what the engine is asked."""

from __future__ import annotations

import re
from random import getrandbits
from typing import TYPE_CHECKING, Any

from attrs import evolve, frozen

from mlxfill_serve.ends import ends_of
from mlxfill_serve.errors import ApiError
from mlxfill_serve.messages import for_template
from mlxfill_serve.tooling import format_of, schema_of, tools_of, with_allowed_tools

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mlxfill import AuditedRun, Engine, Run
    from mlxfill_serve.bodies import Asked, ChatBody, CompletionBody
    from mlxfill_serve.ends import Ends
    from mlxfill_serve.settings import ServeSettings

SEED_BITS = 53
"""Of a seed that we choose: a client in JavaScript can read it in ``usage`` and send it back."""
SEEDS = 1 << 63
DRAWN = -1
"""A seed that llama.cpp and vLLM choose anew for each request; so do we."""
MOST_STOPS = 64
"""Each is looked for after every token, in the thread that all requests share."""
SAMPLING = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "xtc_probability",
    "xtc_threshold",
    "repetition_penalty",
    "repetition_context_size",
    "presence_penalty",
    "presence_context_size",
    "frequency_penalty",
    "frequency_context_size",
)
"""Named alike in bodies and in the engine."""

_THINKING = re.compile(r"(?<![.\w'\"<])thinking\b(?!['\">])")
"""A variable of this name, not a text or an attribute."""

NO_TEMPLATE_OPTIONS = frozenset(
    {
        "add_generation_prompt",
        "chat_template",
        "continue_final_message",
        "conversation",
        "documents",
        "max_length",
        "messages",
        "padding",
        "return_assistant_tokens_mask",
        "return_dict",
        "return_tensors",
        "tokenize",
        "tokenizer_kwargs",
        "tools",
        "truncation",
    }
)
"""Arguments of ``apply_chat_template`` that are no variables of a template."""


@frozen
class Question:
    """A request for one reply: prompt, tools and options of ``Engine.stream``.

    ``most``: tokens that the operator allows a reply, 0 for no such bound.  ``audit``: most tokens
    of prompt and reply when it is to be audited, 0 when not.
    ``ends``: where a reply may end, if not where the model ends it.
    """

    prompt: Any
    tools: list[dict[str, Any]] | None
    options: Mapping[str, Any]
    most: int = 0
    audit: int = 0
    ends: Ends | None = None

    def under(self, adapters: str | None) -> Question:
        """The same question to the model with an adapter."""
        return evolve(self, options={**self.options, "adapters": adapters})

    def read(self, engine: Engine) -> Question:
        """The same question with its prompt as tokens, checked.  In any thread.

        :raises MlxfillError: the engine would not answer it.
        :raises ApiError: it may not be audited.
        """
        options = {"seed": getrandbits(SEED_BITS), **self.options}
        if options.get("xtc_probability"):  # mlx-lm's servers and command line spare these
            spared = [*engine.tokenizer.encode("\n"), *engine.tokenizer.eos_token_ids]
            options["xtc_special_tokens"] = spared
        if self.ends is not None:
            options |= self.ends.options(engine)
        prompt = engine.check(self.prompt, tools=self.tools, **options)
        if self.ends is not None:
            options |= self.ends.processors(engine, len(prompt.ids))
        wanted = options.get("max_tokens", engine.config.generation.max_tokens)
        # Beyond its context a model writes nonsense, without end if no end was asked for.
        room = None if engine.context is None else engine.context - len(prompt.ids)
        bounds = [bound for bound in (room, self.most or None) if bound is not None]
        if bounds and not 0 <= wanted <= min(bounds):
            wanted = options["max_tokens"] = min(bounds)
        if self.audit:
            check_audit(self.audit, len(prompt.ids), wanted)
        return evolve(self, prompt=prompt, options=options)

    def open(self, engine: Engine, *, index: int = 0) -> Run | AuditedRun:
        """The run that answers; further choices differ by their seeds."""
        options = dict(self.options)
        if index:
            options["seed"] = (options["seed"] + index) % SEEDS
        opened = engine.audited if self.audit else engine.stream
        return opened(self.prompt, tools=self.tools, **options)


def chat_question(
    body: ChatBody,
    settings: ServeSettings,
    tokenizer: Any,  # noqa: ANN401 - mlx-lm's wrapper, untyped
) -> Question:
    """What a chat request asks.  Raises ``ApiError`` for what cannot be had."""
    body = with_allowed_tools(body)
    options = common_options(body)
    options.update(_max_tokens(body))
    options["special_tokens_in_content"] = settings.special_tokens_in_content
    options["logprobs"] = bool(body.logprobs)
    if body.logprobs and (body.top_logprobs or 0) > 0:
        options["top_logprobs"] = body.top_logprobs
    tools = tools_of(body)
    template = _template_options(body, tokenizer)
    options["schema"] = schema_of(body, tools, tokenizer, template)
    # In the thoughts of a model the marker ends nothing: there further calls are only left out.
    end = "" if tokenizer.has_thinking else tokenizer.tool_call_end
    if tools and body.parallel_tool_calls is False and end:
        options["stop"] = [*options.get("stop", ()), end]
    if template:
        options["template_options"] = template
    messages = for_template(body.messages)
    most, audit = most_tokens(body, settings, 1), _audit(body, settings)
    return Question(messages, tools, options, most, audit, ends=ends_of(body, options))


def completion_questions(body: CompletionBody, settings: ServeSettings) -> list[Question]:
    """What a completion request asks: one question a prompt."""
    for name in ("suffix", "best_of"):
        value = getattr(body, name)
        if value is not None and value != 1:
            raise refused(name, "leave it out")
    # Without a chat there is no telling thoughts from text.
    options = {"stop_in_reasoning": True, **common_options(body)}
    options.update(_max_tokens(body))
    options["schema"] = format_of(body)
    if body.logprobs is not None and body.logprobs is not False:
        options["logprobs"] = True
        tops = max(int(body.logprobs), body.top_logprobs or 0)
        options["top_logprobs"] = tops
        if body.echo:
            options["prompt_logprobs"] = tops
    prompts, ends = _prompts(body.prompt), ends_of(body, options)
    most, audit = most_tokens(body, settings, len(prompts)), _audit(body, settings)
    return [Question(prompt, None, options, most, audit, ends=ends) for prompt in prompts]


def _prompts(prompt: str | list[Any]) -> list[Any]:
    if isinstance(prompt, str) or (prompt and isinstance(prompt[0], int)):
        return [prompt]
    if not prompt:
        raise ApiError(400, "prompt is empty: at least one token is needed", param="prompt")
    return list(prompt)


def common_options(body: Asked) -> dict[str, Any]:
    """Options of the engine that all requests have."""
    options: dict[str, Any] = {
        name: getattr(body, name) for name in SAMPLING if getattr(body, name) is not None
    }
    if options.get("repetition_penalty") == 0:  # mlx-lm's server: none
        del options["repetition_penalty"]
    if body.seed not in {None, DRAWN}:
        options["seed"] = body.seed % SEEDS
    if body.stop is not None:
        options["stop"] = _stops(body.stop)
    if body.logit_bias:
        options["logit_bias"] = _biases(body.logit_bias)
    return options | _drafting(body) | _extras(body)


def check_replies(body: Asked, settings: ServeSettings, prompts: int) -> None:
    """Raise ``ApiError`` when more replies are asked for than may be."""
    if (body.n or 1) > settings.max_choices:
        said = f"n must be 1 to {settings.max_choices}, not {body.n}"
        raise ApiError(400, said, param="n", code="invalid_value")
    if audit_wanted(body) and prompts * (body.n or 1) > 1:
        said = "mlxfill.audit is for one reply at a time: leave n out, and give one prompt"
        raise ApiError(400, said, param="mlxfill.audit", code="invalid_value")


# --- audits -------------------------------------------------------------------------------


def audit_wanted(body: Asked) -> bool:
    """Whether the reply is to be compared with plain decoding."""
    return body.mlxfill is not None and body.mlxfill.audit


def _audit(body: Asked, settings: ServeSettings) -> int:
    """Most tokens of an audited request, 0 when no audit is asked for."""
    if audit_wanted(body) and not settings.audit:
        said = "mlxfill.audit is not allowed here: the server's operator allows it with --audit N"
        raise ApiError(400, said, param="mlxfill.audit", code="unsupported_parameter")
    return settings.audit if audit_wanted(body) else 0


def check_audit(most: int, prompt: int, reply: int) -> None:
    """Raise ``ApiError`` when the audit of so many tokens may cost too much."""
    if reply < 0 or prompt + reply > most:
        asked = "no end" if reply < 0 else f"{reply} tokens"
        said = (
            f"an audited request may have {most} tokens, not a prompt of {prompt} and a reply of"
            f" {asked}: give a smaller max_tokens"
        )
        raise ApiError(400, said, param="max_tokens", code="invalid_value")


# --- what the engine is asked -----------------------------------------------------------------


def _drafting(body: Asked) -> dict[str, int]:
    """How much a request lets a drafter guess."""
    if body.draft_model not in {None, "default_model"}:
        raise refused("draft_model", "a drafter is chosen when the server starts: --draft")
    if body.mlxfill is not None and body.mlxfill.draft is False:
        return {"num_draft_tokens": 0}
    given = body.num_draft_tokens
    return {} if given is None else {"num_draft_tokens": given}


def _extras(body: Asked) -> dict[str, Any]:
    """What mlxfill adds to OpenAI's API, as options of the engine."""
    asked = body.mlxfill
    if asked is None:
        return {}
    given = {
        "session": asked.session,
        "sources": asked.plugins,
        "stop_in_reasoning": asked.stop_in_reasoning,
    }
    return {name: value for name, value in given.items() if value is not None}


def _template_options(body: ChatBody, tokenizer: Any) -> dict[str, Any]:  # noqa: ANN401
    options = dict(body.chat_template_kwargs or {})
    for name in options:
        if name in NO_TEMPLATE_OPTIONS or name.startswith("_"):
            said = f"chat_template_kwargs may not hold {name!r}"
            raise ApiError(400, said, param="chat_template_kwargs")
    if body.reasoning_effort is not None:
        options.setdefault("reasoning_effort", body.reasoning_effort)
        if body.reasoning_effort in ("none", "minimal"):
            options.setdefault("enable_thinking", False)
    if "enable_thinking" in options and _is_switched_by_thinking(tokenizer):
        options.setdefault("thinking", options["enable_thinking"])
    return options


def _is_switched_by_thinking(tokenizer: Any) -> bool:  # noqa: ANN401
    """Whether a template reads the variable ``thinking``, as DeepSeek's does, in place of ours."""
    source = str(getattr(tokenizer, "chat_template", None) or "")
    return "enable_thinking" not in source and _THINKING.search(source) is not None


def _stops(given: str | list[str]) -> list[str]:
    stops = [given] if isinstance(given, str) else given
    if len(stops) > MOST_STOPS:
        said = f"stop must hold {MOST_STOPS} texts at most, not {len(stops)}"
        raise ApiError(400, said, param="stop", code="invalid_value")
    return stops


def _biases(given: Mapping[str, float]) -> dict[int, float]:
    try:
        return {int(token): bias for token, bias in given.items()}
    except ValueError:
        said = "logit_bias must map token ids to numbers"
        raise ApiError(400, said, param="logit_bias", code="invalid_value") from None


def _max_tokens(body: ChatBody | CompletionBody) -> dict[str, int]:
    wanted = body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens
    return {} if wanted is None else {"max_tokens": wanted}


def most_tokens(body: Asked, settings: ServeSettings, prompts: int) -> int:
    """Most tokens of each reply, 0 for no such bound.

    :raises ApiError: there are more replies than tokens.
    """
    replies = prompts * (body.n or 1)
    if settings.max_tokens and replies > settings.max_tokens:
        said = f"the request asks for {replies} replies; all together may have"
        raise ApiError(400, f"{said} {settings.max_tokens} tokens", code="invalid_value")
    return settings.max_tokens // replies


def refused(name: str, remedy: str) -> ApiError:
    """The field is known and would change the reply, but nothing here heeds it."""
    said = f"{name} is not supported here: {remedy}"
    return ApiError(400, said, param=name, code="unsupported_parameter")
