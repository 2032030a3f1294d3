"""What the tests share: the CPU, one hypothesis profile, drafters in their published folders."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from hypothesis import HealthCheck, settings

from mlxfill.model.target import Target
from mlxfill_spec_dflash.config import DrafterConfig, read_config
from mlxfill_spec_dflash.module import BlockModule
from mlxfill_spec_dflash.weights import CODEBOOKS, parameters
from mlxfill_testing import VOCAB, shared_model, tiny_tokenizer

# Windows and steps are bit-identical on the CPU with the BLAS of the wheel, not on every GPU.
mx.set_default_device(mx.cpu)

settings.register_profile(
    "block drafts",
    max_examples=6,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


def pytest_collectstart(collector: pytest.Collector) -> None:  # noqa: ARG001 - the hook's name
    """These tests have a profile of their own."""
    settings.load_profile("block drafts")


HIDDEN = 64
BACKBONE: dict[str, Any] = {
    "model_type": "qwen3",
    "hidden_size": HIDDEN,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 4096,
    "vocab_size": VOCAB,
    "rope_theta": 10000.0,
}
PUBLISHED: dict[str, dict[str, Any]] = {
    "dflash": {
        **BACKBONE,
        "architectures": ["DFlashDraftModel"],
        "block_size": 6,
        "dflash_config": {"mask_token_id": 63, "target_layer_ids": [0, 1]},
    },
    "dflash sliding": {
        **BACKBONE,
        "architectures": ["DFlashDraftModel"],
        "block_size": 6,
        "layer_types": ["sliding_attention", "full_attention"],
        "sliding_window": 5,
        "dflash_config": {"mask_token_id": 63, "target_layer_ids": [0, 1]},
    },
    "dflash2": {
        **BACKBONE,
        "architectures": ["DFlash2DraftModel"],
        "dflash_config": {
            "block_size": 6,
            "mask_token_id": 63,
            "target_layer_ids": [0, 1],
            "conv_kernel_size": 3,
            "conv_group_size": 8,
            "selector_rank": 8,
            "selector_top_k": 5,
        },
    },
    "dspark": {
        **BACKBONE,
        "architectures": ["Qwen3DSparkModel"],
        "block_size": 5,
        "mask_token_id": 63,
        "target_layer_ids": [0, 1],
        "markov_rank": 8,
        "enable_confidence_head": True,
    },
    "dspark after the anchor": {
        **BACKBONE,
        "architectures": ["DSparkDraftModel"],
        "block_size": 5,
        "dflash_config": {
            "projector_type": "dspark",
            "sample_from_anchor": False,
            "mask_token_id": 63,
            "target_layer_ids": [0, 1],
            "markov_rank": 8,
        },
    },
    "dspark of speculators": {
        "architectures": ["DSparkSpeculator"],
        "speculators_model_type": "dspark",
        "transformer_layer_config": BACKBONE,
        "aux_hidden_state_layer_ids": [0, 1],
        "draft_vocab_size": 24,
        "block_size": 6,
        "mask_token_id": 63,
        "markov_rank": 8,
    },
}
"""Configs of one drafter of each kind, for a target of 64 ids and hidden size 64."""
OWN = {"dspark": True, "dspark of speculators": True}
"""Which of them bring an embedding and a head of their own, and a confidence head."""


def weights_of(config: DrafterConfig, *, own: bool = False, seed: int = 3) -> dict[str, mx.array]:
    """Random weights under the names of a release."""
    mx.random.seed(seed)
    module = BlockModule(config, own_embedding=own, own_head=own)
    made: dict[str, mx.array] = {}
    for name, weight in parameters(module).items():
        noise = mx.random.normal(weight.shape)
        published = name.removesuffix(".weight") if CODEBOOKS[0] in name else name
        published = name.removesuffix(".weight") if CODEBOOKS[1] in name else published
        made[published] = 1 + 0.1 * noise if "norm" in name else 0.2 * noise
    if "d2t" in made:  # every other id
        made["d2t"] = mx.arange(config.draft_vocab_size).astype(mx.int64)
    if own:
        rank = config.markov_rank
        made["confidence_head.proj.weight"] = mx.random.normal((1, config.hidden_size + rank))
        made["confidence_head.proj.bias"] = mx.random.normal((1,))
    return made


def published(folder: Path, kind: str, **changes: Any) -> Path:
    """A drafter as it is published; ``changes`` to its config do not change the weights."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "config.json"
    file.write_text(json.dumps(PUBLISHED[kind]), "utf-8")
    weights = weights_of(read_config(folder), own=OWN.get(kind, False))
    mx.save_safetensors(str(folder / "model.safetensors"), weights)
    file.write_text(json.dumps({**PUBLISHED[kind], **changes}), "utf-8")
    return folder


@pytest.fixture(autouse=True)
def own_cache_folder(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is read from or written to the user's own folders."""
    for variable in ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(variable, str(tmp_path / "home"))


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A published folder of each kind."""
    root = tmp_path_factory.mktemp("drafters")
    return {kind: published(root / kind.replace(" ", "-"), kind) for kind in PUBLISHED}


@pytest.fixture(scope="session")
def target() -> Iterator[Target]:
    """A hybrid of the Qwen3.5 family: recurrent layers and full attention."""
    with Target(shared_model("qwen3_5"), tiny_tokenizer()) as target:
        yield target


@pytest.fixture(scope="session")
def release() -> Callable[..., Path]:
    """``published``: write a drafter's folder."""
    return published
