"""What a caller gets back of a run that has ended."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from mlxfill.request.results import PromptCache, Result
from mlxfill.tool_calls.read import read_calls
from mlxfill.tool_calls.sections import end_of_prompt, reply_apart

if TYPE_CHECKING:
    from mlxfill.decode.runstate import RunState


def collected(run: RunState) -> Result:
    """The reply of a run that has ended: its text taken apart, and what else was asked for."""
    options, reply, request = run.options, run.reply, run.request
    tokenizer, tools = request.tokenizer, request.tools
    asked = end_of_prompt(tokenizer, request.prompt_ids, request.prompt_text)
    reasoning, content, bodies = reply_apart(tokenizer, asked, reply.text, tools=bool(tools))
    scores = run.prefill.scores if options.prompt_logprobs is not None else None
    return Result(
        text=reply.text,
        tokens=reply.tokens,
        origins=reply.origins,
        finish_reason=run.ending.reason if run.ending else "cancelled",
        stats=run.stats,
        faults=run.faults,
        tool_calls=[call for body in bodies for call in read_calls(tokenizer, body, tools)],
        logprobs=reply.logprobs if options.logprobs else None,
        top_logprobs=reply.top_logprobs if options.top_logprobs else None,
        prompt_logprobs=scores.logprobs if scores else None,
        prompt_top_logprobs=scores.top_logprobs if scores else None,
        cache=_kept(run) if options.keep_cache else None,
        reasoning=reasoning,
        content=content,
    )


def _kept(run: RunState) -> PromptCache:
    """A copy of the caches, to begin another request with."""
    caches = copy.deepcopy(run.forwarder.caches)
    return PromptCache(run.stats.cache_tokens, caches, run.options.adapters)
