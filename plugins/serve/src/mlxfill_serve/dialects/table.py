"""Fields of other servers' requests, one a line, and what becomes of each.

Servers: vLLM, SGLang, TGI, llama.cpp, Ollama, LM Studio, KoboldCpp, OpenRouter, LiteLLM, Open
WebUI, Mistral, Groq, and OpenAI's other paths.  ``docs/serve.md`` shows this table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import frozen

from mlxfill_serve.dialects import conversions as c
from mlxfill_serve.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Callable

    Convert = Callable[[Any, str], c.Heard]

EMPTY: tuple[object, ...] = (None, "", [], {})
"""Values with which any field asks for nothing."""
OWN_TEMPLATE = "a prompt is made by the model's own chat template"
TEXT_ONLY = "only text is understood here"
NO_PARTIAL = "a reply is a message of its own: send the text as prompt to /v1/completions"
AS_FORMAT = "give response_format, also {'regex': ...} or {'lark': ...}"
TO_CHAT = "ask /v1/chat/completions"


@frozen
class Field:
    """A field by name; one that ends in ``*`` stands for all that begin so.

    ``target``: our field that it becomes, ``convert`` finds the value.  Else it is refused with a
    ``remedy``, or left out: a client hears of that where ``told``, unless the value is ``neutral``
    (0 is false, too).  ``even_empty``: an empty object asks for it as well.  ``inside``: what an
    object in its place may hold; whatever else it holds is left out, and told.
    """

    name: str
    target: str = ""
    convert: Convert | None = None
    remedy: str = ""
    told: bool = False
    neutral: tuple[object, ...] = ()
    even_empty: bool = False
    inside: tuple[Field, ...] = ()

    def is_neutral(self, value: object) -> bool:
        """Whether nothing is asked for with this value."""
        empty = EMPTY[:1] if self.even_empty else EMPTY
        return value in empty or value in self.neutral

    def check(self, label: str) -> None:
        """Raise ``ApiError`` (400) if nobody may ask for it.  ``label``: as the client named it."""
        if self.remedy:
            said = f"{label} is not supported here: {self.remedy}"
            raise ApiError(400, said, param=label, code="unsupported_parameter")


def _becomes(name: str, target: str, convert: Convert | None = None) -> Field:
    return Field(name, target, convert or c.same(target))


def _harmless(name: str) -> Field:
    return Field(name)


def _ignored(name: str, *neutral: object) -> Field:
    return Field(name, told=True, neutral=neutral)


def _refused(name: str, remedy: str, *neutral: object) -> Field:
    return Field(name, remedy=remedy, neutral=neutral)


REASONING = (
    _becomes("effort", "reasoning_effort"),
    _becomes("enabled", c.SWITCH, c.thinking),
    _becomes("exclude", "include_reasoning", c.exclude),
)
"""OpenRouter's object, and OpenAI's of the Responses API."""

FIELDS = (
    # how long a reply is
    _becomes("max_tokens", "max_tokens"),
    _becomes("max_completion_tokens", "max_tokens"),
    _becomes("max_output_tokens", "max_tokens"),
    _becomes("max_new_tokens", "max_tokens"),
    _becomes("n_predict", "max_tokens", c.length),
    _becomes("num_predict", "max_tokens", c.length),
    _becomes("min_new_tokens", "min_tokens"),
    _becomes("stop_sequences", "stop"),
    _becomes("stop_sequence", "stop"),
    # how tokens are drawn
    _becomes("temp", "temperature"),
    _becomes("do_sample", "temperature", c.do_sample),
    _becomes("repeat_penalty", "repetition_penalty"),
    _becomes("rep_pen", "repetition_penalty"),
    _becomes("repeat_last_n", "repetition_context_size", c.repeat_last_n),
    _becomes("rep_pen_range", "repetition_context_size", c.repeat_last_n),
    _becomes("random_seed", "seed"),
    _becomes("sampling_seed", "seed"),
    # whether and how much a model thinks
    _becomes("enable_thinking", "chat_template_kwargs.enable_thinking"),
    _becomes("thinking", "chat_template_kwargs.enable_thinking", c.thinking),
    _becomes("think", "chat_template_kwargs.enable_thinking", c.thinking),
    Field("reasoning", "reasoning_effort", c.thinking, inside=REASONING),
    _becomes("reasoning_effort", "reasoning_effort"),
    _becomes("include_reasoning", "include_reasoning"),
    _becomes("reasoning_format", "include_reasoning", c.reasoning_format),
    _becomes("chat_template_kwargs", "chat_template_kwargs"),
    _becomes("chat_template_args", "chat_template_kwargs"),
    _ignored("thinking_budget", -1),
    _ignored("thinking_budget_tokens", -1),
    _ignored("thinking_token_budget", -1),
    _ignored("reasoning_budget", -1),
    _ignored("separate_reasoning", 1),
    _ignored("stream_reasoning", 1),
    # what a reply must be
    _becomes("response_format", "response_format", c.response_format),
    _becomes("guided_json", "response_format", c.json_schema),
    _becomes("guided_json_object", "response_format", c.json_object),
    _becomes("guided_regex", "response_format", c.regex),
    _becomes("guided_choice", "response_format", c.choice),
    _becomes("guided_grammar", "response_format", c.grammar),
    _becomes("structured_outputs", "response_format", c.structured_outputs),
    _becomes("json_schema", "response_format", c.json_schema),
    _becomes("regex", "response_format", c.regex),
    _becomes("choice", "response_format", c.choice),
    _becomes("grammar", "response_format", c.grammar),
    _becomes("ebnf", "response_format", c.grammar),
    _becomes("format", "response_format", c.format_of_ollama),
    _harmless("guided_decoding_backend"),
    _refused("guided_whitespace_pattern", AS_FORMAT),
    _refused("whitespace_pattern", AS_FORMAT),
    _refused("structural_tag", AS_FORMAT),
    _refused("grammar_lazy", "give tool_choice 'auto'", 0),
    _refused("grammar_triggers", "give tool_choice 'auto'"),
    _refused("allowed_token_ids", "give logit_bias"),
    _refused("bad_words", "give logit_bias"),
    _refused("bad_words_ids", "give logit_bias"),
    _refused("banned_tokens", "give logit_bias"),
    _refused("banned_strings", "give logit_bias or stop"),
    _refused("custom_token_bans", "give logit_bias"),
    _refused("custom_logit_processor", "give logit_bias"),
    _refused("custom_params", "leave it out"),
    _refused("logits_processors", "give logit_bias"),
    _refused("trim_stop", "leave it out", 1),
    # what is said to the model
    _refused("chat_template", OWN_TEMPLATE),
    _refused("template", OWN_TEMPLATE),
    _refused("prompt_template", OWN_TEMPLATE),
    _refused("raw", OWN_TEMPLATE, 0),
    _refused("role_mapping", OWN_TEMPLATE),
    _refused("system", "give a message with the role system"),
    _refused("system_prompt", "give a message with the role system"),
    _refused("instructions", "give a message with the role system"),
    _refused("input", "give messages"),
    _refused("prompt", "give messages"),
    _refused("messages", TO_CHAT),
    _refused("context", "give all messages"),
    _refused("documents", "put them into a message"),
    _refused("images", TEXT_ONLY),
    _refused("image_data", TEXT_ONLY),
    _refused("audio_data", TEXT_ONLY),
    _refused("video_data", TEXT_ONLY),
    _refused("multimodal_data", TEXT_ONLY),
    _refused("prompt_embeds", "give prompt"),
    _refused("input_embeds", "give prompt"),
    _refused("input_ids", "give prompt to /v1/completions"),
    _refused("add_generation_prompt", NO_PARTIAL, 1),
    _refused("continue_final_message", NO_PARTIAL, 0),
    _refused("input_prefix", "give prompt and suffix as one text"),
    _refused("input_suffix", "give prompt and suffix as one text"),
    _refused("input_extra", "put it into prompt"),
    _refused("suffix", "leave it out"),
    _refused("functions", "give tools"),
    _refused("function_call", "give tool_choice"),
    _refused("tools", TO_CHAT),
    _refused("tool_choice", TO_CHAT, "none", "auto"),
    _refused("lora", "name an adapter: adapters"),
    _refused("lora_path", "name an adapter: adapters"),
    _refused("lora_request", "name an adapter: adapters"),
    _refused("web_search", "leave it out", 0),
    Field("web_search_options", remedy="leave it out", even_empty=True),
    _refused("audio", TEXT_ONLY),
    _refused("moderation", "leave it out"),
    _refused("n", "a response is one: ask again", 1),
    _ignored("parallel_tool_calls", 1),
    _ignored("add_special_tokens", 1),
    _ignored("truncate_prompt_tokens", -1),
    _ignored("truncate", 0),
    _ignored("transforms"),
    _ignored("plugins"),
    # other ways to draw
    _ignored("typical_p", 1, 0),
    _ignored("typical", 1, 0),
    _ignored("tfs_z", 1, 0),
    _ignored("tfs", 1, 0),
    _ignored("top_a", 0),
    _ignored("top_n_sigma", -1, 0),
    _ignored("nsigma", -1, 0),
    _ignored("eta_cutoff", 0),
    _ignored("epsilon_cutoff", 0),
    _ignored("smoothing_factor", 0),
    _ignored("smoothing_curve", 1),
    _ignored("dynatemp_*", 0, 1),
    _ignored("dynamic_temperature", 0),
    _ignored("mirostat", 0),
    _ignored("mirostat_mode", 0),
    _ignored("mirostat_tau"),
    _ignored("mirostat_eta"),
    _ignored("dry_multiplier", 0),
    _ignored("dry_*"),
    _ignored("adaptive_*", -1),
    _ignored("samplers"),
    _ignored("sampler_order"),
    _ignored("sampler_priority"),
    _ignored("sampler_seed"),
    _ignored("min_keep", 0),
    _ignored("temperature_last", 0),
    _ignored("no_repeat_ngram_size", 0),
    _ignored("encoder_repetition_penalty", 1),
    _ignored("penalty_alpha", 0),
    _ignored("guidance_scale", 1),
    _ignored("penalize_newline", 0),
    _ignored("penalize_nl", 0),
    _ignored("penalty_prompt"),
    _ignored("use_beam_search", 0),
    _ignored("length_penalty", 1),
    _ignored("early_stopping", 0),
    _ignored("num_beams", 1),
    _ignored("watermark", 0),
    # what is told beside the reply
    _becomes("n_probs", "logprobs", c.n_probs),
    _ignored("echo", 0),
    _ignored("best_of", 1),
    _ignored("top_logprobs", 0),
    _ignored("prompt_logprobs", 0),
    _ignored("post_sampling_probs", 0),
    _ignored("return_tokens", 0),
    _ignored("return_token_ids", 0),
    _ignored("return_tokens_as_token_ids", 0),
    _ignored("return_hidden_states", 0),
    _ignored("return_routed_experts", 0),
    _ignored("return_cached_tokens_details", 0),
    _ignored("return_progress", 0),
    _ignored("return_citations", 0),
    _ignored("return_images", 0),
    _ignored("timings_per_token", 0),
    _ignored("response_fields"),
    _ignored("include_stop_str_in_output", 0),
    _ignored("no_stop_trim", 0),
    _ignored("skip_special_tokens", 1),
    _ignored("spaces_between_special_tokens", 1),
    _ignored("detokenize", 1),
    _ignored("logprob_start_len", -1),
    _ignored("logprobs_mode"),
    _ignored("details", 0),
    _ignored("decoder_input_details", 0),
    _ignored("return_full_text", 0),
    _harmless("usage"),
    _harmless("stream_options"),
    _harmless("stream_interval"),
    # what holds for the request
    _ignored("priority", 0),
    _ignored("num_ctx"),
    _ignored("num_keep"),
    _ignored("n_keep", 0),
    _ignored("n_discard", 0),
    _ignored("n_indent", 0),
    _ignored("t_max_predict_ms", 0, -1),
    _ignored("t_max_prompt_ms", 0, -1),
    _ignored("provider"),
    _ignored("route"),
    _ignored("models"),
    _ignored("fallbacks"),
    _ignored("timeout"),
    _ignored("request_timeout"),
    _ignored("safe_prompt", 0),
    _ignored("vllm_xargs"),
    _ignored("kv_transfer_params"),
    _refused("guardrails", "leave it out, and let a proxy do it"),
    _refused("guardrail_config", "leave it out, and let a proxy do it"),
    _refused("safety_settings", "leave it out, and let a proxy do it"),
    # how it is computed, and what it is called: no reply depends on it
    _harmless("modalities"),
    _harmless("verbosity"),
    _harmless("prediction"),
    _harmless("cache_prompt"),
    _harmless("cache_control"),
    _harmless("cache_salt"),
    _harmless("n_cache_reuse"),
    _harmless("caching"),
    _harmless("cache"),
    _harmless("keep_alive"),
    _harmless("ttl"),
    _harmless("id_slot"),
    _harmless("slot_id"),
    _harmless("speculative*"),
    _harmless("num_batch"),
    _harmless("num_gpu"),
    _harmless("main_gpu"),
    _harmless("num_thread"),
    _harmless("low_vram"),
    _harmless("f16_kv"),
    _harmless("numa"),
    _harmless("use_mmap"),
    _harmless("use_mlock"),
    _harmless("vocab_only"),
    _harmless("mm_processor_kwargs"),
    _harmless("media_io_kwargs"),
    _harmless("chat_id"),
    _harmless("session_id"),
    _harmless("conversation_id"),
    _harmless("message_id"),
    _harmless("request_id"),
    _harmless("rid"),
    _harmless("id"),
    _harmless("uuid"),
    _harmless("user_id"),
    _harmless("data_parallel_rank"),
    _harmless("background_tasks"),
    _harmless("features"),
    _harmless("variables"),
    _harmless("model_item"),
    _harmless("filter_ids"),
    _harmless("tool_ids"),
    _harmless("tool_servers"),
    _harmless("params"),
    _harmless("trace"),
    _harmless("tags"),
    _harmless("trace_id"),
    _harmless("generation_name"),
    _harmless("extra_headers"),
    _harmless("extra_query"),
    _harmless("litellm_*"),
    _harmless("custom_llm_provider"),
    _harmless("num_retries"),
    _harmless("max_retries"),
    _harmless("drop_params"),
    _harmless("additional_drop_params"),
    _harmless("allowed_openai_params"),
    _harmless("no-log"),
    _harmless("api_key"),
    _harmless("api_base"),
    _harmless("base_url"),
)
WRAPPERS = ("options", "extra_body")
"""Objects whose fields count as if they stood in the body."""

MESSAGE = (
    _refused("images", TEXT_ONLY),
    _refused("image_url", TEXT_ONLY),
    _refused("audio", TEXT_ONLY),
    _refused("videos", TEXT_ONLY),
    _refused("files", TEXT_ONLY),
    _refused("attachments", TEXT_ONLY),
    _refused("prefix", NO_PARTIAL, 0),
    _refused("partial", NO_PARTIAL, 0),
    _harmless("id"),
    _harmless("type"),
    _harmless("status"),
    _harmless("object"),
    _harmless("index"),
    _harmless("created"),
    _harmless("created_at"),
    _harmless("timestamp"),
    _harmless("model"),
    _harmless("annotations"),
    _harmless("cache_control"),
    _harmless("provider_specific_fields"),
    _harmless("reasoning_signature"),
    _harmless("thought_signature"),
    _harmless("parsed"),
    _harmless("weight"),
    _harmless("metadata"),
    _harmless("tool_name"),
    _harmless("is_error"),
)
"""Fields of messages beside those that are heeded."""

STREAM_OPTIONS = (
    _harmless("include_obfuscation"),
    _ignored("continuous_usage_stats", 0),
)
"""Fields of ``stream_options`` beside ``include_usage``."""

PART = (
    _harmless("annotations"),
    _harmless("logprobs"),
    _harmless("cache_control"),
)
"""Fields of a part of a message beside its text."""

ITEM = (
    _harmless("status"),
    _harmless("phase"),
    _harmless("cache_control"),
)
"""Fields of what was said, called or answered, as the Responses API has it."""

THOUGHT = (_harmless("type"),)
"""Fields of a part of a thought beside its text."""

TOOL = (_harmless("cache_control"),)
"""Fields of a tool of the Responses API beside those of its function."""
