"""Writes down what mlx-vlm's own MTP head drafts, for tests/test_mtp_oracle.py to compare with.

    PEER=$(python benchmarks/peers.py)
    $PEER benchmarks/vlm_oracle.py TARGET HEAD PROMPTS > tests/oracle/mtp.json

Runs inside the peers' environment, on mlx's own BLAS.  TARGET and HEAD are folders of the tiny
models, PROMPTS is a JSON list of lists of ids.  The target is mlx-lm's, so that both sides hand
the head the same hidden states; rounds are verified greedily.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx_lm import load
from mlx_lm.models.base import create_attention_mask, create_ssm_mask
from mlx_lm.models.cache import KVCache, make_prompt_cache
from mlx_vlm.speculative.drafters.qwen3_5_mtp import Model, ModelConfig

ROUNDS = 16


class Greedy:
    """A sampler that keeps the log-probability of what it takes."""

    def __init__(self) -> None:
        self.logprobs: list[float] = []

    def __call__(self, logits: mx.array) -> mx.array:
        """The likeliest ids of ``[B, L, V]`` logits."""
        best = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
        self.logprobs.append(round(float(best[0, -1].max()), 6))
        return mx.argmax(logits, axis=-1)


def forward(target: Any, tokens: list[int], cache: list[Any]) -> tuple[mx.array, mx.array]:  # noqa: ANN401
    """Logits, and hidden states before the final norm."""
    body = target.model
    hidden = body.embed_tokens(mx.array([tokens]))
    attention = create_attention_mask(hidden, cache[body.fa_idx])
    recurrent = create_ssm_mask(hidden, cache[body.ssm_idx])
    for layer, entry in zip(body.layers, cache, strict=True):
        hidden = layer(hidden, mask=recurrent if layer.is_linear else attention, cache=entry)
    return body.embed_tokens.as_linear(body.norm(hidden)), hidden


def back(cache: list[Any], kept: list[Any]) -> None:
    """Restore what ``keep`` remembered."""
    for entry, state in zip(cache, kept, strict=True):
        if isinstance(entry, KVCache):
            entry.offset = state
        else:
            entry.cache = list(state)


def keep(cache: list[Any]) -> list[Any]:
    """Offsets and state arrays."""
    return [entry.offset if isinstance(entry, KVCache) else list(entry.cache) for entry in cache]


def story(target: Any, head: Any, prompt: list[int]) -> dict[str, Any]:  # noqa: ANN401
    """Rounds on one prompt: the pending token, the drafts, their log-probabilities."""
    sampler, cache = Greedy(), make_prompt_cache(target)
    logits, hidden = forward(target, prompt, cache)
    pending = int(mx.argmax(logits[0, -1]))
    head.reset(target)
    head.prefill_from_target_hidden(mx.array([prompt]), hidden, pending, sampler)
    rounds = []
    for _ in range(ROUNDS):
        drafted = head.draft_block(pending, hidden, None, head.config.block_size, sampler)
        drafts = [int(token) for token in drafted[0]]
        before = keep(cache)
        logits, hidden = forward(target, [pending, *drafts], cache)
        chosen = [int(token) for token in mx.argmax(logits[0], axis=-1)]
        accepted = next((i for i, d in enumerate(drafts) if d != chosen[i]), len(drafts))
        if accepted < len(drafts):
            back(cache, before)
            forward(target, [pending, *drafts[:accepted]], cache)
        logprobs, sampler.logprobs = sampler.logprobs, []
        rounds.append({"pending": pending, "drafts": drafts, "logprobs": logprobs})
        pending = chosen[accepted]
        head.accept_verified_tokens(hidden, drafted, accepted, chosen[: accepted + 1], sampler)
    return {"prompt": prompt, "rounds": rounds}


def main() -> None:
    """Write the stories of all prompts as JSON."""
    target_folder, head_folder, prompts = (Path(argument) for argument in sys.argv[1:])
    target = load(str(target_folder))[0]
    head = Model(ModelConfig.from_dict(json.loads((head_folder / "config.json").read_text())))
    weights = head.sanitize(mx.load(str(head_folder / "model.safetensors")))
    head.load_weights(list(weights.items()))
    head.eval()
    stories = [story(target, head, prompt) for prompt in json.loads(prompts.read_text())]
    json.dump(stories, sys.stdout)


if __name__ == "__main__":
    main()
