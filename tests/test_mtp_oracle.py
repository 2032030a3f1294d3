"""The MTP head drafts what mlx-vlm's own module drafts from the same weights and hidden states.

``oracle/mtp.json`` was written by mlx-vlm 0.7.10 (``benchmarks/vlm_oracle.py`` makes it anew).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from mlx_lm import load

from mlxfill import Sampling
from mlxfill.config import load_config
from mlxfill.model.target import Target
from mlxfill.plugins import PluginManager
from mlxfill.rewind.window import CacheWindow
from mlxfill.sampling import Chooser
from mlxfill_spec_qwen_mtp import MtpSettings
from mlxfill_spec_qwen_mtp.provider import load_provider

mx.set_default_device(mx.cpu)

STORIES = json.loads((Path(__file__).parent / "oracle" / "mtp.json").read_text("utf-8"))
NOISE = 2e-5
"""Both sides compute in fp32, in another order."""


class Noting(Chooser):
    """Greedy draws, with the log-probability of each."""

    def __init__(self) -> None:
        super().__init__(Sampling(seed=0))
        self.logprobs: list[mx.array] = []

    def draw(self, logits: mx.array, positions: Sequence[int]) -> mx.array:
        self.logprobs.append((logits - mx.logsumexp(logits, axis=-1, keepdims=True)).max())
        return super().draw(logits, positions)


def folder(name: str) -> Path:
    found = PluginManager.load(load_config({})).resolve_model(name)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    model, tokenizer = load(str(folder("tiny")))[:2]
    with Target(model, tokenizer) as target:
        yield target


@pytest.mark.parametrize("number", range(len(STORIES)))
def test_chained_blocks_are_those_of_mlx_vlm(target: Target, number: int) -> None:
    prompt, rounds = STORIES[number]["prompt"], STORIES[number]["rounds"]
    provider = load_provider(folder("tiny-mtp"), target, MtpSettings(held_rows="chained"))
    sampling, cache = Noting(), target.new_cache()
    rows = provider.open(target, [sampling], [None])
    window = CacheWindow(target, cache)

    def states(ids: Sequence[int]) -> tuple[mx.array, mx.array]:
        window.begin(len(ids))
        with target.taping() as tape:
            logits = target.forward(mx.array([list(ids)]), cache)
        window.taped(tape)
        return logits[0], target.aux_states(tape, rows.aux_layers)

    rows.prefill(mx.array([prompt]), states(prompt)[1])
    at = len(prompt)
    for each in rounds:
        ours: Any = rows.draft([each["pending"]], 2, [at + 1])[0].tolist()
        assert ours == each["drafts"]
        logprobs = [float(value) for value in sampling.logprobs]
        assert logprobs == pytest.approx(each["logprobs"], abs=NOISE)
        sampling.logprobs.clear()
        logits, aux_states = states([each["pending"], *ours])
        chosen: Any = mx.argmax(logits, axis=-1).tolist()
        accepted = next((i for i, d in enumerate(ours) if d != chosen[i]), len(ours))
        rows.commit([chosen[: accepted + 1]], aux_states[:, : accepted + 1])
        window.rewind(accepted + 1)
        at += accepted + 1
    assert {len(each["drafts"]) for each in rounds} == {2}
