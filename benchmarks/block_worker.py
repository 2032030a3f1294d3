"""Drafts blocks with mlx-vlm's own modules, for block_oracle.py, in the peers' environment.

Arguments: folders of drafters.  Beside each lies ``NAME-story.safetensors``: ``embedding``
``[V, H]``, which is head too, ``anchors`` ``[R]``, and of each round r its new ``states.r``
``[1, m, n * H]``.  Prints a JSON list: of each folder and round ids and log-probabilities.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx_vlm.speculative.drafters import load_drafter


class Greedy:
    """A sampler that keeps the log-probability of what it takes."""

    def __init__(self) -> None:
        self.logprobs: list[float] = []

    def __call__(self, logits: mx.array) -> mx.array:
        """The likeliest ids of ``[..., V]`` logits."""
        best = (logits - mx.logsumexp(logits, axis=-1, keepdims=True)).max(-1)
        self.logprobs += [float(each) for each in best.flatten()]
        return mx.argmax(logits, axis=-1)


def rounds(folder: Path) -> list[dict[str, Any]]:
    """The rounds of one story."""
    drafter: Any = load_drafter(str(folder))[0]
    story: Any = mx.load(str(folder.with_name(f"{folder.name}-story.safetensors")))
    if drafter.embed_tokens is None:
        drafter.embed_tokens = nn.Embedding(*story["embedding"].shape)
        drafter.embed_tokens.weight = story["embedding"]
    head = getattr(drafter, "lm_head", None)
    drafter.lm_head = head if head is not None else lambda x: x @ story["embedding"].T
    cache, found = drafter.make_cache(), []
    for number, anchor in enumerate(story["anchors"].tolist()):
        sampler = Greedy()
        size = drafter.config.block_size
        ids = drafter.draft_block(anchor, story[f"states.{number}"], cache, size, sampler)
        found.append({"ids": ids[0].tolist(), "logprobs": sampler.logprobs})
    return found


if __name__ == "__main__":
    mx.set_default_device(mx.cpu)
    print(json.dumps([rounds(Path(folder)) for folder in sys.argv[1:]]))
