"""Compare block drafters with mlx-vlm's: the same ids, the same log-probabilities.

    PEER=$(python benchmarks/peers.py)               # installs mlx-vlm 0.7.10 for itself
    python benchmarks/block_oracle.py $PEER

Writes random drafters in each published layout, loads each with the plugin and with mlx-vlm and
tells both the same states of a target, round after round.  One line a layout.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mlx.core as mx
from rich.console import Console
from rich.table import Table

from mlxfill import Chooser, Sampling
from mlxfill_spec_dflash.config import read_config
from mlxfill_spec_dflash.module import BlockModule
from mlxfill_spec_dflash.provider import load_provider
from mlxfill_spec_dflash.weights import CODEBOOKS, parameters

if TYPE_CHECKING:
    from collections.abc import Sequence

WORKER = Path(__file__).with_name("block_worker.py")
HIDDEN, VOCAB, LAYERS, READ = 64, 256, 8, [1, 3, 5]
ROUNDS = (40, 1, 6, 3, 1, 2, 8, 4)
"""States that are new in each round: a prompt, then what rounds kept."""
LEAST_SLIDING = 2
"""Where a round kept nothing, mlx-vlm masks a ring of keys as if it lay in the order of time."""
BACKBONE: dict[str, Any] = {
    "model_type": "qwen3",
    "hidden_size": HIDDEN,
    "intermediate_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 4096,
    "vocab_size": VOCAB,
    "rope_theta": 10000.0,
    "num_target_layers": LAYERS,
    "block_size": 8,
}
READS: dict[str, Any] = {"mask_token_id": VOCAB - 1, "target_layer_ids": READ}
DFLASH2 = {"conv_kernel_size": 3, "conv_group_size": 8, "selector_rank": 16, "selector_top_k": 8}
LAYOUTS: dict[str, dict[str, Any]] = {
    "DFlash": {"architectures": ["DFlashDraftModel"], "dflash_config": READS},
    "DFlash, sliding": {
        "architectures": ["DFlashDraftModel"],
        "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
        "sliding_window": 24,
        "dflash_config": {**READS, "causal": True},
    },
    "DFlash2": {"architectures": ["DFlash2DraftModel"], "dflash_config": {**READS, **DFLASH2}},
    "DSpark": {
        "architectures": ["DSparkDraftModel"],
        "dflash_config": {**READS, "projector_type": "dspark", "markov_rank": 16},
    },
    "DSpark, after the anchor": {
        "architectures": ["DSparkDraftModel"],
        "dflash_config": {
            **READS,
            "projector_type": "dspark",
            "markov_rank": 16,
            "sample_from_anchor": False,
        },
    },
}


class Stand:
    """A target of which a drafter needs an embedding that is its head, too."""

    layer_count, hidden_size, vocab_size, path = LAYERS, HIDDEN, VOCAB, None

    def __init__(self, embedding: mx.array) -> None:
        self._embedding = embedding

    def embed(self, ids: mx.array) -> mx.array:
        """``[B, L]`` to ``[B, L, H]``."""
        return self._embedding[ids]

    def project(self, hidden: mx.array) -> mx.array:
        """``[B, L, H]`` to ``[B, L, V]``."""
        return hidden @ self._embedding.T


class Noting(Chooser):
    """Greedy draws, with the log-probability of each."""

    def __init__(self) -> None:
        super().__init__(Sampling(seed=0))
        self.logprobs: list[float] = []

    def draw(self, logits: mx.array, positions: Sequence[int]) -> mx.array:
        """Note and draw."""
        best = (logits - mx.logsumexp(logits, axis=-1, keepdims=True)).max(-1)
        self.logprobs += [float(each) for each in best.flatten()]
        return super().draw(logits, positions)


def write(folder: Path, layout: dict[str, Any], seed: int) -> None:
    """A drafter with random weights, and a story."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({**BACKBONE, **layout}), "utf-8")
    mx.random.seed(seed)
    module = BlockModule(read_config(folder), own_embedding=False, own_head=False)
    weights = {
        name.removesuffix(".weight") if any(book in name for book in CODEBOOKS) else name: (
            1 + 0.1 * noise if "norm" in name else 0.15 * noise
        )
        for name, weight in parameters(module).items()
        for noise in (mx.random.normal(weight.shape),)
    }
    mx.save_safetensors(str(folder / "model.safetensors"), weights, {"format": "mlx"})
    least = LEAST_SLIDING if "sliding_window" in layout else 1
    story = {
        f"states.{number}": mx.random.normal((1, max(count, least), len(READ) * HIDDEN))
        for number, count in enumerate(ROUNDS)
    }
    story["embedding"] = 0.2 * mx.random.normal((VOCAB, HIDDEN))
    story["anchors"] = mx.random.randint(0, VOCAB - 1, (len(ROUNDS),))
    mx.save_safetensors(str(folder.with_name(f"{folder.name}-story.safetensors")), story)


def ours(folder: Path) -> list[dict[str, Any]]:
    """The plugin's rounds."""
    story: Any = mx.load(str(folder.with_name(f"{folder.name}-story.safetensors")))
    target: Any = Stand(story["embedding"])
    provider = load_provider(folder, target)
    sampler = Noting()
    rows = provider.open(target, [sampler], [None])
    found, told = [], 0
    for number, anchor in enumerate(story["anchors"].tolist()):
        states = story[f"states.{number}"]
        rows.commit([[0] * states.shape[1]], states)
        told += states.shape[1]
        sampler.logprobs = []
        drafts: Any = rows.draft([anchor], provider.default_depth, [told + 1]).tolist()
        found.append({"ids": drafts[0], "logprobs": sampler.logprobs})
    return found


def main(peer: str) -> None:
    """Compare and print."""
    mx.set_default_device(mx.cpu)
    table = Table("layout", "blocks", "drafts", "same ids", "log-probabilities differ by at most")
    with tempfile.TemporaryDirectory() as scratch:
        folders = [Path(scratch) / name.replace(" ", "") for name in LAYOUTS]
        for seed, (folder, layout) in enumerate(zip(folders, LAYOUTS.values(), strict=True)):
            write(folder, layout, seed)
        command = [peer, str(WORKER), *map(str, folders)]
        said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout  # noqa: S603
        for name, folder, theirs in zip(LAYOUTS, folders, json.loads(said), strict=True):
            pairs = list(zip(ours(folder), theirs, strict=True))
            same = sum(a["ids"] == b["ids"] for a, b in pairs)
            drafts = sum(len(b["ids"]) for _, b in pairs)
            worst = max(
                (
                    abs(x - y)
                    for a, b in pairs
                    if len(a["logprobs"]) == len(b["logprobs"])
                    for x, y in zip(a["logprobs"], b["logprobs"], strict=True)
                ),
                default=None,
            )
            told = "chosen among candidates" if worst is None else f"{worst:.1e}"
            table.add_row(name, str(len(pairs)), str(drafts), f"{same} of {len(pairs)}", told)
    Console().print(table)


if __name__ == "__main__":
    main(sys.argv[1])
